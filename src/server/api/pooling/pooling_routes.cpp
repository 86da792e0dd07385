// Routes that return vectors or scores of texts. Runs on the server's thread, except for jobs of the job pool. An answer may contain
// millions of numbers, so only short answers are written on the server's thread; long ones would delay other clients. If a client
// disconnects, its PendingReply is destroyed together with the work in progress.
#include "server/api/pooling/pooling_routes.h"

#include <fmt/format.h>

#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/answers/pooling_call.h"
#include "server/api/pooling/embeddings.h"
#include "server/api/pooling/rerank.h"
#include "server/api/pooling/token_vectors.h"
#include "server/api/serving.h"
#include "server/request/served_model.h"

namespace quire {

namespace {

// Writing more numbers than this takes longer than passing them to another thread and back.
constexpr std::size_t kMaxInlineNumbers = 4096;
// Writing more numbers than this on the server's thread would delay other clients too long, even if the job pool is full.
constexpr std::size_t kMaxLateNumbers = 256 << 10;

// The request's id, and the client whose share of the job pool its jobs use.
struct Caller {
  std::string id, client;
};

void answer_pooling(Serving& serving, const PreparedPooling& prepared, const Caller& caller, std::vector<PooledVector> vectors,
                    const std::weak_ptr<PendingReply>& pending, const Wake& wake) {
  struct Job {
    PreparedPooling prepared;
    PooledHead head;
    std::vector<PooledVector> vectors;
    Result<std::string> body;
    std::exception_ptr failure{};
  };
  const std::size_t num_numbers = vectors.empty() ? 0 : vectors.size() * vectors.front().size();
  auto job = std::make_shared<Job>(Job{
      prepared,
      {fmt::format("{}-{}", prepared.kind, caller.id), prepared.adapter.empty() ? serving.model().name() : prepared.adapter, unix_now_s()},
      std::move(vectors),
      std::string()});
  auto work = [job] {
    try {
      job->body = job->prepared.answer(job->head, job->vectors);
    } catch (const std::exception&) {
      job->failure = std::current_exception();
    }
  };
  auto finish = [&serving, job, id = caller.id, pending, wake] {
    const auto reply = pending.lock();
    if (reply == nullptr) return;
    reply->reply = serving.guard(id, [&serving, &job, &id]() -> Reply {
      if (job->failure) std::rethrow_exception(job->failure);
      if (!job->body) return serving.refuse(job->body.error());
      return serving.with_ignored_fields(Serving::json_reply(*std::move(job->body)), id, job->prepared.ignored);
    });
    wake();
  };
  const auto lane = prepared.writes_files ? JobPool::Lane::disk : JobPool::Lane::large;
  const bool takes_long = prepared.writes_files || num_numbers > kMaxInlineNumbers;
  if (takes_long && serving.submit_job(lane, caller.client, work, finish)) return;
  if (prepared.writes_files || num_numbers > kMaxLateNumbers) {
    if (const auto reply = pending.lock())
      reply->reply = serving.refuse({ErrorCode::overloaded, "", "too many large answers are waiting to be written", "try again later"});
    return wake();
  }
  work();
  finish();
}

Reply start_pooling(Serving& serving, PreparedPooling prepared, Caller caller, const Wake& wake) {
  auto pending = std::make_shared<PendingReply>();
  std::vector<EngineRequest> requests = std::exchange(prepared.requests, {});
  auto done = [&serving, prepared = std::move(prepared), caller = std::move(caller), wake,
               weak = std::weak_ptr(pending)](Result<std::vector<PooledVector>> vectors) {
    if (vectors) return answer_pooling(serving, prepared, caller, std::move(*vectors), weak, wake);
    if (const auto reply = weak.lock()) reply->reply = serving.refuse(vectors.error());
    wake();
  };
  auto call = PoolingCall::start(serving.engine(), std::move(requests), std::move(done));
  if (!call) return serving.refuse(call.error());
  pending->work = *std::move(call);
  return {HttpResponse{}, nullptr, std::move(pending)};
}

Serving::RemainingWork answer_without_vectors(Serving& serving, PreparedPooling prepared, const std::string& id) {
  auto body = prepared.answer({fmt::format("{}-{}", prepared.kind, id), serving.model().name(), unix_now_s()}, {});
  if (!body) return serving.refusal(body.error());
  return [&serving, id, json = *std::move(body), ignored = std::move(prepared.ignored)](const Wake& /*wake*/) {
    return serving.with_ignored_fields(Serving::json_reply(json), id, ignored);
  };
}

Route pooling_route(Serving& serving, std::string_view path, PreparePooling prepare) {
  const auto handle = [&serving, prepare](HttpRequest& request, const Wake& wake) {
    return answer_pooled(serving, request, wake, prepare);
  };
  return {path, "POST", Access::key, handle};
}

}  // namespace

Reply answer_pooled(Serving& serving, HttpRequest& request, const Wake& wake, PreparePooling prepare) {
  if (serving.is_draining())
    return serving.refuse({ErrorCode::shutting_down, "", "the server is shutting down", "send the request to another server"});
  return serving.read_body(request, wake,
                           [&serving, prepare, id = request.answer_id(), client = request.client, tenant = serving.tenant_of(request)](
                               std::string body, const CancellationPoint& cancellation) -> Serving::RemainingWork {
                             auto prepared = prepare(std::move(body), serving.context(tenant, &cancellation));
                             if (!prepared) return serving.refusal(prepared.error());
                             if (prepared->requests.empty()) return answer_without_vectors(serving, *std::move(prepared), id);
                             return [&serving, id, client,
                                     kept = std::make_shared<PreparedPooling>(*std::move(prepared))](const Wake& then_wake) {
                               const auto with_lease = [&serving, id, client, kept, then_wake](const Serving::Lease& lease) {
                                 for (EngineRequest& each : kept->requests) each.adapter_lease = lease;
                                 return start_pooling(serving, std::move(*kept), {id, client}, then_wake);
                               };
                               return serving.with_adapter(kept->adapter, id, then_wake, with_lease);
                             };
                           });
}

ApiRoutes pooling_routes(Serving& serving) {
  return {.routes = {
              pooling_route(serving, "/v1/embeddings", prepare_embeddings),
              pooling_route(serving, "/pooling", prepare_pooling),
              pooling_route(serving, "/score", prepare_score),
              pooling_route(serving, "/v1/score", prepare_score),
              pooling_route(serving, "/rerank", prepare_rerank),
              pooling_route(serving, "/v1/rerank", prepare_rerank),
              pooling_route(serving, "/v2/rerank", prepare_rerank),
          }};
}

}  // namespace quire
