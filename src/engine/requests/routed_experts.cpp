#include "engine/requests/routed_experts.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"

namespace quire {

void RoutedExperts::take(const WorkerResult& result) {
  for (const RequestResult& request : result.requests) {
    const RoutedRows& rows = request.routed;
    if (rows.num_tokens() == 0) continue;
    const Live& live = live_.at(request.id);
    // Its siblings', too, and a client may be reading them: what is there is not written again.
    std::vector<std::uint16_t>* const room = live.prompt_experts.get();
    if (room == nullptr) continue;
    const std::size_t known = room->size() / rows.width;
    QUIRE_CHECK(rows.first_token <= known, "who asks for experts has all of its prompt computed");
    const std::size_t end = std::min<std::size_t>(rows.first_token + rows.num_tokens(), live.num_prompt_tokens);
    if (end <= known) continue;
    const auto fresh = rows.experts.subspan((known - rows.first_token) * rows.width, (end - known) * rows.width);
    room->insert(room->end(), fresh.begin(), fresh.end());
  }
}

void RoutedExperts::give(const RequestResult& result, std::size_t num_tokens, Live& live, RequestOutput& output) {
  const RoutedRows& rows = result.routed;
  if (rows.num_tokens() == 0) return;
  QUIRE_CHECK(num_tokens <= result.samples.size() && result.samples.size() <= rows.num_tokens(), "a row before each sample");
  const bool is_whole = live.prompt_experts == nullptr || live.prompt_experts->size() == std::size_t{live.num_prompt_tokens} * rows.width;
  QUIRE_CHECK(is_whole, "a token of the prompt whose experts nobody has told");
  // The row before the first sample of all is the prompt's last.
  const std::size_t num_given = live.prompt_experts != nullptr ? 1 : 0;
  output.prompt_experts = std::exchange(live.prompt_experts, nullptr);
  const auto given = rows.experts.last(result.samples.size() * rows.width).subspan(num_given * rows.width);
  const auto own = given.first((num_tokens - num_given) * rows.width);
  output.routed_experts.assign(own.begin(), own.end());
}

}  // namespace quire
