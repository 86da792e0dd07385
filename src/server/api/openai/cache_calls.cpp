// Asks the engine what a prompt would find, and goes on with the answer. On the server's thread; the engine answers between two steps. A
// client that has left meanwhile ends what was asked for it.
#include "server/api/openai/cache_calls.h"

#include <fmt/format.h>

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/append_format.h"
#include "base/json_text.h"
#include "server/answers/pooling_call.h"
#include "server/api/openai/kept_call.h"
#include "server/http/error_response.h"
#include "server/request/prepare.h"

namespace quire {

namespace {

std::string number_or_null(std::optional<double> seconds) {
  return seconds ? fmt::format("{:.6f}", *seconds) : "null";
}

std::string predicted(const EngineProbe& probe) {
  std::optional<double> all;
  if (probe.wait_s && probe.load_s && probe.compute_s) all = *probe.wait_s + *probe.load_s + *probe.compute_s;
  return fmt::format(R"({{"ttft_s":{},"wait_s":{},"load_s":{},"compute_s":{}}})", number_or_null(all), number_or_null(probe.wait_s),
                     number_or_null(probe.load_s), number_or_null(probe.compute_s));
}

// How much of it is where, as both calls tell it.
std::string counts(const CacheProbe& cache, const EngineStats& stats) {
  std::string text =
      fmt::format(R"("prompt_tokens":{},"cached_tokens":{},"missed_tokens":{},"found":[{{"tier":"memory","tokens":{}}})", cache.num_tokens,
                  cache.num_tokens - cache.num_missed_tokens(), cache.num_missed_tokens(), cache.num_local_tokens);
  for (const TierMatch& match : cache.external) {
    const std::string name = match.tier < stats.kv_tiers.size() ? stats.kv_tiers[match.tier].name : "connector";
    append_format(text, R"(,{{"tier":{},"tokens":{}}})", json_string(name), match.num_tokens);
  }
  return fmt::format(R"({}],"tiers_known":{})", text, cache.is_external_known);
}

using Then = std::function<Reply(const std::shared_ptr<KeptCall>& call, const EngineProbe& probe)>;

Reply ask(Serving& serving, PreparedCompletion prepared, const std::string& request_id, const Wake& wake, Then then) {
  if (prepared.prompts.size() != 1)
    return serving.refuse({ErrorCode::invalid_argument, "prompt", "holds several prompts", "ask for each by itself"});
  EngineRequest asked = prepared.prompts.front();
  auto pending = std::make_shared<PendingReply>();
  auto call = std::make_shared<KeptCall>(KeptCall{serving, std::move(prepared), request_id, pending, wake});
  auto answer = [call, then = std::move(then)](const Result<EngineProbe>& probe) {
    if (call->pending.expired()) return call->wake();
    const auto go_on = [&] { return probe ? then(call, *probe) : call->serving.refuse(probe.error()); };
    Reply reply = call->serving.guard(call->request_id, go_on);
    // It goes on with a call of its own, which has set its own end.
    if (reply.pending == nullptr) call->reply(std::move(reply));
  };
  serving.engine().engine().probe(std::move(asked), serving.engine().on_server<EngineProbe>(std::move(answer)));
  return {HttpResponse{}, nullptr, std::move(pending)};
}

// A vector of the last token computes the prompt and leaves its blocks, and draws nothing.
Reply warm(const std::shared_ptr<KeptCall>& call, const EngineProbe& before) {
  const EngineRequest& prompt = call->prepared.prompts.front();
  std::vector<EngineRequest> requests(1);
  EngineRequest& request = requests.front();
  request.prompt = prompt.prompt;
  request.pooling = true;
  request.sampling.max_tokens = 1;
  request.cache_salt = prompt.cache_salt;
  request.priority = prompt.priority;
  request.tags.tenant = prompt.tags.tenant;
  request.adapter = prompt.adapter;
  request.adapter_lease = prompt.adapter_lease;
  const std::string said = counts(before.cache, call->serving.engine().engine().stats());
  auto done = [call, said](const Result<std::vector<PooledVector>>& rows) {
    call->reply(rows ? Serving::json_reply(fmt::format(R"({{"object":"cache.warm",{}}})", said)) : call->serving.refuse(rows.error()));
  };
  auto started = PoolingCall::start(call->serving.engine(), std::move(requests), std::move(done));
  if (!started) return call->serving.refuse(started.error());
  const auto waiting = call->pending.lock();
  waiting->work = *std::move(started);
  return {HttpResponse{}, nullptr, waiting};
}

}  // namespace

Reply start_probe(Serving& serving, PreparedCompletion prepared, const std::string& request_id, const Wake& wake) {
  return ask(serving, std::move(prepared), request_id, wake, [](const std::shared_ptr<KeptCall>& call, const EngineProbe& probe) {
    const std::string said = counts(probe.cache, call->serving.engine().engine().stats());
    return Serving::json_reply(fmt::format(R"({{"object":"cache.probe",{},"predicted":{}}})", said, predicted(probe)));
  });
}

Reply start_warming(Serving& serving, PreparedCompletion prepared, const std::string& request_id, const Wake& wake) {
  return ask(serving, std::move(prepared), request_id, wake, warm);
}

Reply start_if_cached(Serving& serving, PreparedCompletion prepared, const std::string& request_id, const Wake& wake) {
  return ask(serving, std::move(prepared), request_id, wake, [](const std::shared_ptr<KeptCall>& call, const EngineProbe& probe) -> Reply {
    const std::uint32_t block_size = call->serving.engine().engine().options().cache.block_size;
    if (const std::uint32_t missed = probe.cache.num_missed_tokens(); missed > block_size) {
      return {error_response(412, {ErrorCode::not_found, "fail_if_not_cached",
                                   fmt::format("{} of {} tokens of the prompt are not in the cache", missed, probe.cache.num_tokens),
                                   "POST /v1/cache/warm first, or leave it out"})};
    }
    return call->serving.start(std::move(call->prepared), call->request_id, call->wake);
  });
}

}  // namespace quire
