#pragma once
// Which handler answers which request.
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "quire/server_options.h"
#include "server/answers/engine_client.h"
#include "server/api/pooling/pooling_request.h"
#include "server/api/responses/response_store.h"
#include "server/completion.h"
#include "server/http/http.h"
#include "server/http/job_pool.h"
#include "server/http/request_log.h"
#include "server/http/tenants.h"
#include "server/operate/metrics.h"
#include "server/prepare.h"
#include "server/request/served_model.h"

namespace quire {

struct PendingReply;

// An answer at once, or one under way: then `response` is empty.
struct Reply {
  HttpResponse response;
  std::shared_ptr<Completion> completion{};
  std::shared_ptr<PendingReply> pending{};
};

// What the engine or the job pool has still to say.
struct PendingReply {
  std::optional<Reply> reply;
  std::atomic<bool> cancelled{false};  // the client has gone: not worth beginning
  std::shared_ptr<void> work{};        // goes with this: what is under way for it
};

// Server's thread only.
class Router {
 public:
  using Wake = std::function<void()>;

  // As JobPool::submit().
  using Offload = std::function<bool(JobPool::Lane lane, JobPool::Function work, JobPool::Function done)>;

  Router(EngineClient& engine, const ServedModel& model, const ServerOptions& options, Logger& logger, Offload offload);

  // What to answer without reading the body: a refusal, or a browser's pre-flight. Nothing: read it and call handle().
  [[nodiscard]] std::optional<HttpResponse> answer_early(const HttpRequest& request) const;

  // `request` is one that answer_early() let pass; its body is taken. `wake` is called whenever a completion has something new, or a
  // pending reply is there; it must stay callable as long as they live.
  [[nodiscard]] Reply handle(HttpRequest& request, const Wake& wake);

  // From now on no completion starts, and /health and /ready say so.
  void drain() { draining_ = true; }
  [[nodiscard]] BodyBudget& body_budget() { return body_budget_; }
  // Unlike any other, also of other runs of the server.
  [[nodiscard]] std::string next_request_id();
  [[nodiscard]] RequestLog& log() { return log_; }
  [[nodiscard]] ServerStats& stats() { return stats_; }

 private:
  using Handler = Reply (Router::*)(HttpRequest& request, const Wake& wake);
  // own_key: the server's, not a tenant's. admin: with it, and admit_operator() agrees.
  enum class Access : std::uint8_t { open, key, own_key, admin };
  struct Route {
    std::string_view path;
    std::string_view method;
    Access access;
    Handler handler;
  };
  // What "*" of the route stands for.
  [[nodiscard]] static std::string_view name_in(std::string_view route, std::string_view path);
  static Reply json_reply(std::string body);
  [[nodiscard]] static HttpResponse no_route(const HttpRequest& request, const std::string& allowed);
  static const Route* find_route(std::string_view path, std::string_view method, std::string& allowed);

  // What became of a body: an answer, or what is to be submitted.
  using Prepared = std::variant<HttpResponse, PreparedCompletion, PreparedPooling, PreparedInput>;
  using Prepare = std::function<Prepared(std::string body)>;
  // Runs `prepare` here if there are few bytes to read, else in the job pool.
  Reply offload(HttpRequest& request, const Wake& wake, Prepare prepare) {
    const std::size_t num_bytes = request.body.size();
    return offload(request, num_bytes, wake, std::move(prepare));
  }
  Reply offload(HttpRequest& request, std::size_t num_bytes, const Wake& wake, Prepare prepare);
  Reply conclude(Prepared prepared, const std::string& id, const Wake& wake);
  // What `handler` says; a 500 and a line in the log if it throws.
  [[nodiscard]] Reply guard(const std::string& id, const std::function<Reply()>& handler);
  [[nodiscard]] HttpResponse answer_or_refuse(Result<std::string> body) const;
  Reply complete(Api api, HttpRequest& request, const Wake& wake);
  Reply chat_page(HttpRequest& request, const Wake& wake);
  Reply api_page(HttpRequest& request, const Wake& wake);
  Reply openapi(HttpRequest& request, const Wake& wake);
  Reply models(HttpRequest& request, const Wake& wake);
  Reply health(HttpRequest& request, const Wake& wake);
  Reply ready(HttpRequest& request, const Wake& wake);
  Reply version(HttpRequest& request, const Wake& wake);
  Reply metrics(HttpRequest& request, const Wake& wake);
  Reply cache(HttpRequest& request, const Wake& wake);
  Reply tokenize(HttpRequest& request, const Wake& wake);
  Reply detokenize(HttpRequest& request, const Wake& wake);
  Reply tokenizer_info(HttpRequest& request, const Wake& wake);
  Reply completions(HttpRequest& request, const Wake& wake);
  Reply chat_completions(HttpRequest& request, const Wake& wake);
  Reply messages(HttpRequest& request, const Wake& wake);
  Reply count_tokens(HttpRequest& request, const Wake& wake);
  [[nodiscard]] std::size_t num_bytes_behind(const HttpRequest& request) const;
  Reply create_response(HttpRequest& request, const Wake& wake);
  Reply count_input_tokens(HttpRequest& request, const Wake& wake);
  Reply read_response(HttpRequest& request, const Wake& wake);
  Reply read_response_input(HttpRequest& request, const Wake& wake);
  Reply delete_response(HttpRequest& request, const Wake& wake);
  Reply embeddings(HttpRequest& request, const Wake& wake);
  Reply pooling(HttpRequest& request, const Wake& wake);
  Reply score(HttpRequest& request, const Wake& wake);
  Reply rerank(HttpRequest& request, const Wake& wake);
  using PreparePooling = Result<PreparedPooling> (*)(std::string body, const RequestContext& context);
  Reply pool(HttpRequest& request, const Wake& wake, PreparePooling prepare);
  Reply start_pooling(PreparedPooling prepared, const std::string& id, const Wake& wake);
  // Of a completion's prompt, before it starts: it finds the blocks that this leaves.
  Reply start_states(PreparedCompletion prepared, const std::string& id, const Wake& wake);
  void write_states(const std::shared_ptr<PreparedCompletion>& prepared, const std::string& id, PooledVector rows,
                    const std::weak_ptr<PendingReply>& pending, const Wake& wake);
  Reply start_completion(PreparedCompletion prepared, const std::string& id, std::string hidden_states_path, const Wake& wake);
  void answer_pooling(const PreparedPooling& prepared, const std::string& id, std::vector<PooledVector> vectors,
                      const std::weak_ptr<PendingReply>& pending, const Wake& wake);
  Reply fork(HttpRequest& request, const Wake& wake);
  Reply append_input(HttpRequest& request, const Wake& wake);
  Reply give_input(PreparedInput input);
  // Of this tenant, under way; else the error.
  [[nodiscard]] Result<std::shared_ptr<Completion>> find_completion(const std::string& tenant, const std::string& id) const;
  void remember(const std::string& tenant, const std::string& id, const std::shared_ptr<Completion>& completion);
  Reply reset_prefix_cache(HttpRequest& request, const Wake& wake);
  Reply pause(HttpRequest& request, const Wake& wake);
  Reply resume(HttpRequest& request, const Wake& wake);
  Reply is_paused(HttpRequest& request, const Wake& wake);
  // `ask` hands its argument to a verb of the engine; the answer's body is made by `body`.
  [[nodiscard]] std::optional<Reply> too_many_wait();
  Reply ask_engine(const Wake& wake, std::string (*body)(bool), const std::function<void(ControlAnswer)>& ask);
  [[nodiscard]] Reply refuse(const Error& error) const;

  EngineClient* engine_;
  const ServedModel* model_;
  const ServerOptions* options_;
  Offload offload_;
  std::int64_t started_s_;
  std::uint64_t run_id_;  // keeps ids of two runs of the server apart
  std::uint64_t num_requests_ = 0;
  std::uint32_t num_asked_ = 0;  // of the engine, and not answered yet
  bool draining_ = false;
  // By tenant and the ids of their answers; swept of those that are over when it has doubled.
  std::map<std::pair<std::string, std::string>, std::weak_ptr<Completion>> completions_;
  std::size_t sweep_at_ = 64;
  ResponseStore responses_;
  ApiKeys keys_;
  BodyBudget body_budget_;
  RequestLog log_;
  ServerStats stats_;
};

}  // namespace quire
