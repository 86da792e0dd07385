// Asks the engine which tokens of a prompt are in the caches, then answers or starts the request. Runs on the server's thread; the engine
// answers between two steps. If the client disconnects, its request is dropped.
#include "server/api/openai/cache_calls.h"

#include <fmt/format.h>

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/append_format.h"
#include "base/json_writer.h"
#include "server/answers/pooling_call.h"
#include "server/api/openai/deferred_call.h"
#include "server/http/error_response.h"
#include "server/request/prepare.h"

namespace quire {

namespace {

std::string predicted(const EngineProbe& probe) {
  std::optional<double> all;
  if (probe.wait_s && probe.load_s && probe.compute_s) all = *probe.wait_s + *probe.load_s + *probe.compute_s;
  return json_object([&](JsonWriter& json) {
    json.field("ttft_s", all).field("wait_s", probe.wait_s).field("load_s", probe.load_s).field("compute_s", probe.compute_s);
  });
}

// Returns the numbers of the prompt's tokens in each tier, as JSON that the answers to probing and warming share.
std::string counts(const CacheProbe& cache, const EngineStats& stats) {
  std::string text;
  JsonWriter json(text);
  const auto found = [&](std::string_view tier, std::uint64_t num_tokens) {
    json.begin_object().field("tier", tier).field("tokens", num_tokens).end_object();
  };
  json.field("prompt_tokens", cache.num_tokens).field("cached_tokens", cache.num_tokens - cache.num_missed_tokens());
  json.field("missed_tokens", cache.num_missed_tokens()).begin_array("found");
  found("memory", cache.num_local_tokens);
  for (const TierMatch& match : cache.external)
    found(match.tier < stats.kv_tiers.size() ? stats.kv_tiers[match.tier].name : "connector", match.num_tokens);
  json.end_array().field("tiers_known", cache.is_external_known);
  return text;
}

using Then = std::function<Reply(const std::shared_ptr<DeferredCall>& call, const EngineProbe& probe)>;

Reply ask(Serving& serving, PreparedCompletion prepared, const std::string& request_id, const Wake& wake, Then then) {
  if (prepared.prompts.size() != 1)
    return serving.refuse({ErrorCode::invalid_argument, "prompt", "contains several prompts", "send a separate request for each prompt"});
  EngineRequest asked = prepared.prompts.front();
  asked.probes_tenant_blocks = !asked.tags.tenant.empty() && serving.options().tenants_share_cache();
  auto pending = std::make_shared<PendingReply>();
  auto call = std::make_shared<DeferredCall>(DeferredCall{serving, std::move(prepared), request_id, pending, wake});
  auto answer = [call, then = std::move(then)](const Result<EngineProbe>& probe) {
    if (call->pending.expired()) return call->wake();
    const auto answer_probe = [&] { return probe ? then(call, *probe) : call->serving.refuse(probe.error()); };
    Reply reply = call->serving.guard(call->request_id, answer_probe);
    // If `pending` is set, a further engine call is in progress and completes the reply later.
    if (reply.pending == nullptr) call->reply(std::move(reply));
  };
  serving.engine().engine().probe(std::move(asked), serving.engine().on_server<EngineProbe>(std::move(answer)));
  return {HttpResponse{}, nullptr, std::move(pending)};
}

// Requests the hidden state of the last token. This computes the prompt, leaves its blocks in the prefix cache, and samples nothing.
Reply warm(const std::shared_ptr<DeferredCall>& call, const EngineProbe& before) {
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
  return ask(serving, std::move(prepared), request_id, wake, [](const std::shared_ptr<DeferredCall>& call, const EngineProbe& probe) {
    const std::string said = counts(probe.cache, call->serving.engine().engine().stats());
    return Serving::json_reply(fmt::format(R"({{"object":"cache.probe",{},"predicted":{}}})", said, predicted(probe)));
  });
}

Reply start_warming(Serving& serving, PreparedCompletion prepared, const std::string& request_id, const Wake& wake) {
  return ask(serving, std::move(prepared), request_id, wake, warm);
}

Reply start_if_cached(Serving& serving, PreparedCompletion prepared, const std::string& request_id, const Wake& wake) {
  return ask(
      serving, std::move(prepared), request_id, wake, [](const std::shared_ptr<DeferredCall>& call, const EngineProbe& probe) -> Reply {
        const std::uint32_t block_size = call->serving.engine().engine().options().cache.block_size;
        if (const std::uint32_t missed = probe.cache.num_missed_tokens(); missed > block_size) {
          return {error_response(412, {ErrorCode::not_found, "fail_if_not_cached",
                                       fmt::format("{} of {} tokens of the prompt are not in the cache", missed, probe.cache.num_tokens),
                                       "call POST /v1/cache/warm first, or leave it out"})};
        }
        return call->serving.start(std::move(call->prepared), call->request_id, call->wake);
      });
}

}  // namespace quire
