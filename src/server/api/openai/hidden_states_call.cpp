#include "server/api/openai/hidden_states_call.h"

#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "server/answers/pooling_call.h"
#include "server/api/openai/deferred_call.h"
#include "server/api/openai/openai_shape.h"
#include "server/request/hidden_states.h"
#include "server/request/prepare.h"
namespace quire {

namespace {

Reply start_written(DeferredCall& call, const std::string& path) {
  CompletionRequest& request = call.prepared.request;
  request.shape = std::make_shared<const OpenAiShape>(request.api, path);
  return call.serving.start(std::move(call.prepared), call.request_id, call.wake);
}

void write_states(const std::shared_ptr<DeferredCall>& call, PooledVector rows) {
  struct Job {
    PooledVector rows;
    Result<std::string> path;
    std::exception_ptr failure{};
  };
  auto job = std::make_shared<Job>(Job{std::move(rows), std::string()});
  Serving& serving = call->serving;
  const std::string id = std::string(call->prepared.request.shape->id_prefix()) + call->request_id;
  auto work = [job, call, id, destination = make_hidden_states_folder(serving.options(), call->prepared.prompts.front().tags.tenant)] {
    try {
      const EngineRequest& prompt = call->prepared.prompts.front();
      job->path = write_hidden_states(destination, id, prompt.prompt, job->rows);
    } catch (const std::exception&) {
      job->failure = std::current_exception();
    }
  };
  auto finish = [job, call, id] {
    if (call->pending.expired()) return call->wake();
    call->reply(call->serving.guard(id, [&]() -> Reply {
      if (job->failure) std::rethrow_exception(job->failure);
      if (!job->path) return call->serving.refuse(job->path.error());
      return start_written(*call, *job->path);
    }));
  };
  if (serving.submit_job(JobPool::Lane::disk, call->prepared.request.tags.tenant, std::move(work), std::move(finish))) return;
  call->reply(serving.refuse({ErrorCode::overloaded, "", "too many hidden states are waiting to be written", "try again later"}));
}

}  // namespace

Reply start_with_states(Serving& serving, PreparedCompletion prepared, const std::string& request_id, const Wake& wake) {
  const EngineRequest& prompt = prepared.prompts.front();
  if (auto fits = check_hidden_states(prompt.prompt.size(), "prompt", serving.context(prompt.tags.tenant)); !fits)
    return serving.refuse(fits.error());
  std::vector<EngineRequest> requests(1);
  EngineRequest& request = requests.front();
  request.prompt = prompt.prompt;
  request.pooling = true;
  request.sampling.pooling.kind = PoolingKind::all;
  request.sampling.max_tokens = 1;
  request.cache_salt = prompt.cache_salt;
  request.priority = prompt.priority;
  request.tags.tenant = prompt.tags.tenant;
  request.adapter = prompt.adapter;
  request.adapter_lease = prompt.adapter_lease;
  auto pending = std::make_shared<PendingReply>();
  auto kept = std::make_shared<DeferredCall>(DeferredCall{serving, std::move(prepared), request_id, pending, wake});
  auto done = [kept](Result<std::vector<PooledVector>> rows) {
    if (rows) return write_states(kept, std::move(rows->front()));
    kept->reply(kept->serving.refuse(rows.error()));
  };
  auto call = PoolingCall::start(serving.engine(), std::move(requests), std::move(done));
  if (!call) return serving.refuse(call.error());
  pending->work = *std::move(call);
  return {HttpResponse{}, nullptr, std::move(pending)};
}

}  // namespace quire
