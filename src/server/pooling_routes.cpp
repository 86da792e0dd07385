// The router's part of calls for vectors of texts.
#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "server/api/pooling/embeddings.h"
#include "server/api/pooling/rerank.h"
#include "server/api/pooling/token_vectors.h"
#include "server/http/error_response.h"
#include "server/router.h"

namespace quire {
namespace {

// More numbers than these take longer to write than to hand to another thread and back.
constexpr std::size_t kMaxInlineNumbers = 4096;
// So many hold up the other clients for too long.
constexpr std::size_t kMaxLateNumbers = 256 << 10;

}  // namespace

Reply Router::embeddings(HttpRequest& request, const Wake& wake) {
  return pool(request, wake, prepare_embeddings);
}

Reply Router::pooling(HttpRequest& request, const Wake& wake) {
  return pool(request, wake, prepare_pooling);
}

Reply Router::score(HttpRequest& request, const Wake& wake) {
  return pool(request, wake, prepare_score);
}

Reply Router::rerank(HttpRequest& request, const Wake& wake) {
  return pool(request, wake, prepare_rerank);
}

Reply Router::pool(HttpRequest& request, const Wake& wake, PreparePooling prepare) {
  if (draining_) return refuse({ErrorCode::shutting_down, "", "the server is shutting down", "send the request elsewhere"});
  return offload(request, wake, [this, prepare, tenant = keys_.tenant_of(request.authorization).value()](std::string body) -> Prepared {
    auto prepared = prepare(std::move(body), {*model_, *options_, tenant});
    if (!prepared) return error_response(prepared.error(), options_->retry_after_s);
    return std::move(*prepared);
  });
}

Reply Router::start_pooling(PreparedPooling prepared, const std::string& id, const Wake& wake) {
  auto pending = std::make_shared<PendingReply>();
  std::vector<EngineRequest> requests = std::exchange(prepared.requests, {});
  auto done = [this, prepared = std::move(prepared), id, wake, weak = std::weak_ptr(pending)](Result<std::vector<PooledVector>> vectors) {
    if (vectors) return answer_pooling(prepared, id, std::move(*vectors), weak, wake);
    if (const auto reply = weak.lock()) reply->reply = refuse(vectors.error());
    wake();
  };
  auto call = PoolingCall::start(*engine_, std::move(requests), std::move(done));
  if (!call) return refuse(call.error());
  pending->work = *std::move(call);
  return {HttpResponse{}, nullptr, std::move(pending)};
}

void Router::answer_pooling(const PreparedPooling& prepared, const std::string& id, std::vector<PooledVector> vectors,
                            const std::weak_ptr<PendingReply>& pending, const Wake& wake) {
  struct Job {
    PreparedPooling prepared;
    PooledHead head;
    std::vector<PooledVector> vectors;
    Result<std::string> body;
    std::exception_ptr failure{};
  };
  const auto now_s = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  const std::size_t num_numbers = vectors.empty() ? 0 : vectors.size() * vectors.front().size();
  auto job = std::make_shared<Job>(
      Job{prepared, {fmt::format("{}-{}", prepared.kind, id), model_->name(), std::int64_t{now_s}}, std::move(vectors), std::string()});
  auto work = [job] {
    try {
      job->body = job->prepared.answer(job->head, job->vectors);
    } catch (const std::exception&) {
      job->failure = std::current_exception();
    }
  };
  auto finish = [this, job, id, pending, wake] {
    const auto reply = pending.lock();
    if (reply == nullptr) return;
    reply->reply = guard(id, [this, &job]() -> Reply {
      if (job->failure) std::rethrow_exception(job->failure);
      if (!job->body) return refuse(job->body.error());
      return {HttpResponse{200, "application/json", *std::move(job->body), {}}};
    });
    wake();
  };
  const auto lane = prepared.writes_files ? JobPool::Lane::disk : JobPool::Lane::large;
  const bool takes_long = prepared.writes_files || num_numbers > kMaxInlineNumbers;
  if (takes_long && offload_(lane, work, finish)) return;
  if (prepared.writes_files || num_numbers > kMaxLateNumbers) {
    if (const auto reply = pending.lock())
      reply->reply = refuse({ErrorCode::overloaded, "", "too many large answers wait to be written", "try again later"});
    return wake();
  }
  work();
  finish();
}

}  // namespace quire
