// The router's part of completions that want the hidden states of their prompt in a file.
#include <utility>

#include "server/http/error_response.h"
#include "server/request/hidden_states.h"
#include "server/router.h"

namespace quire {

Reply Router::start_states(PreparedCompletion prepared, const std::string& id, const Wake& wake) {
  const EngineRequest& prompt = prepared.prompts.front();
  if (auto fits = check_hidden_states(prompt.prompt.size(), "prompt", {*model_, *options_, prompt.tags.tenant}); !fits)
    return refuse(fits.error());
  EngineRequest request;
  request.prompt = prompt.prompt;
  request.pooling = true;
  request.sampling.pooling.kind = PoolingKind::all;
  request.sampling.max_tokens = 1;
  request.cache_salt = prompt.cache_salt;
  request.priority = prompt.priority;
  request.tags.tenant = prompt.tags.tenant;
  auto pending = std::make_shared<PendingReply>();
  auto kept = std::make_shared<PreparedCompletion>(std::move(prepared));
  auto done = [this, kept, id, wake, weak = std::weak_ptr(pending)](Result<std::vector<PooledVector>> rows) {
    if (rows) return write_states(kept, id, std::move(rows->front()), weak, wake);
    if (const auto reply = weak.lock()) reply->reply = refuse(rows.error());
    wake();
  };
  std::vector<EngineRequest> requests;
  requests.push_back(std::move(request));
  auto call = PoolingCall::start(*engine_, std::move(requests), std::move(done));
  if (!call) return refuse(call.error());
  pending->work = *std::move(call);
  return {HttpResponse{}, nullptr, std::move(pending)};
}

void Router::write_states(const std::shared_ptr<PreparedCompletion>& prepared, const std::string& id, PooledVector rows,
                          const std::weak_ptr<PendingReply>& pending, const Wake& wake) {
  struct Job {
    PooledVector rows;
    Result<std::string> path;
    std::exception_ptr failure{};
  };
  auto job = std::make_shared<Job>(Job{std::move(rows), std::string()});
  auto work = [job, prepared, id, folder = options_->hidden_states_folder] {
    try {
      job->path = write_hidden_states(folder, id, prepared->prompts.front().prompt, job->rows);
    } catch (const std::exception&) {
      job->failure = std::current_exception();
    }
  };
  auto finish = [this, job, prepared, id, pending, wake] {
    if (const auto reply = pending.lock()) {
      reply->reply = guard(id, [&]() -> Reply {
        if (job->failure) std::rethrow_exception(job->failure);
        if (!job->path) return refuse(job->path.error());
        return start_completion(std::move(*prepared), id, *job->path, wake);
      });
    }
    wake();
  };
  if (offload_(JobPool::Lane::disk, std::move(work), std::move(finish))) return;
  if (const auto reply = pending.lock())
    reply->reply = refuse({ErrorCode::overloaded, "", "too many hidden states wait to be written", "try again later"});
  wake();
}

}  // namespace quire
