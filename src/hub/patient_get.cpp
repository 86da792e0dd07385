#include "hub/patient_get.h"

#include <fmt/format.h>

#include <algorithm>

namespace quire {
namespace {

constexpr unsigned kMaxTries = 5, kMaxSilentTries = 2;
constexpr std::uint32_t kMaxWait_s = 300;
constexpr std::uint64_t kProgressBytes = std::uint64_t{1} << 20;

bool is_temporary(unsigned status) {
  return status == 408 || status == 429 || status == 500 || (status >= 502 && status <= 504);
}

// Returns the pause after a number of failed tries: 0, 1, 2 and 4 seconds, or at least what the host asks for.
std::uint32_t pause_s(unsigned num_failed, std::uint32_t asked_s) {
  const std::uint32_t backoff = num_failed <= 1 ? 0 : 1U << (num_failed - 2);
  return std::max(backoff, asked_s);
}

}  // namespace

Result<HttpHead> get_patiently(HttpClient& client, const std::function<HttpGet()>& next, const HttpSink& sink, const HubHooks& hooks) {
  unsigned num_failed = 0;
  std::uint64_t progress = 0;
  bool has_answered = false;
  const HttpSink watched{.begin =
                             [&](const HttpHead& head) {
                               has_answered = true;
                               return sink.begin(head);
                             },
                         .take = sink.take};
  while (true) {
    const HttpGet request = next();
    auto head = client.get(request, watched);
    has_answered = has_answered || head.has_value();
    if (head ? !is_temporary(head->status) : head.error().code != ErrorCode::unavailable) return head;
    if (const std::uint64_t reached = next().first_byte; reached >= progress + kProgressBytes) {
      progress = reached;
      num_failed = 0;
    }
    if (++num_failed >= (has_answered ? kMaxTries : kMaxSilentTries)) return head;
    const std::uint32_t asked_s = head ? head->retry_after_s.value_or(0) : 0;
    if (asked_s > kMaxWait_s)
      return fail(ErrorCode::overloaded, "MODEL", fmt::format("{} asks for a pause of {} s", host_in(request.url), asked_s),
                  "run the command again later; with HF_TOKEN the hub allows more requests");
    const std::uint32_t pause = pause_s(num_failed, asked_s);
    const std::string why =
        head ? fmt::format("{} answers with status {}", host_in(head->url), head->status) : std::string(head.error().message);
    hooks.say(pause == 0 ? fmt::format("{}; trying again", why) : fmt::format("{}; trying again in {} s", why, pause));
    if (pause > 0) hooks.wait(std::chrono::seconds(pause));
  }
}

}  // namespace quire
