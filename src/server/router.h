#pragma once
// Which handler answers which request.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "server/completion.h"
#include "server/engine_client.h"
#include "server/http.h"
#include "server/metrics.h"
#include "server/served_model.h"
#include "server/server_options.h"

namespace quire {

// An answer that the engine has still to give.
struct PendingResponse {
  std::optional<HttpResponse> response;
};

// An answer at once, or one under way: then `response` is empty.
struct Reply {
  HttpResponse response;
  std::shared_ptr<Completion> completion{};
  std::shared_ptr<PendingResponse> pending{};
};

// Server's thread only.
class Router {
 public:
  using Wake = std::function<void()>;

  Router(EngineClient& engine, const ServedModel& model, const ServerOptions& options);

  // What to answer without reading the body: a refusal, or a browser's pre-flight. Nothing: read it and call handle().
  [[nodiscard]] std::optional<HttpResponse> answer_early(const HttpRequest& request) const;

  // `request` is one that answer_early() let pass. `wake` is called whenever a completion has something new, or a pending response is
  // there; it must stay callable as long as they live.
  [[nodiscard]] Reply handle(const HttpRequest& request, const Wake& wake);

  // From now on no completion starts, and /health says so.
  void drain() { draining_ = true; }
  [[nodiscard]] BodyBudget& body_budget() { return body_budget_; }
  [[nodiscard]] ServerStats& stats() { return stats_; }

 private:
  using Handler = Reply (Router::*)(const HttpRequest& request, const Wake& wake);
  enum class Access : std::uint8_t { open, key, admin };  // admin: with the key, and admit_operator() agrees
  struct Route {
    std::string_view path;
    std::string_view method;
    Access access;
    Handler handler;
  };
  [[nodiscard]] static HttpResponse no_route(const HttpRequest& request, const std::string& allowed);
  static const Route* find_route(std::string_view path, std::string_view method, std::string& allowed);

  [[nodiscard]] Result<void> authorize(const HttpRequest& request) const;
  Reply complete(Api api, const HttpRequest& request, const Wake& wake);
  Reply chat_page(const HttpRequest& request, const Wake& wake);
  Reply models(const HttpRequest& request, const Wake& wake);
  Reply health(const HttpRequest& request, const Wake& wake);
  Reply version(const HttpRequest& request, const Wake& wake);
  Reply metrics(const HttpRequest& request, const Wake& wake);
  Reply tokenize(const HttpRequest& request, const Wake& wake);
  Reply detokenize(const HttpRequest& request, const Wake& wake);
  Reply completions(const HttpRequest& request, const Wake& wake);
  Reply chat_completions(const HttpRequest& request, const Wake& wake);
  Reply reset_prefix_cache(const HttpRequest& request, const Wake& wake);
  Reply pause(const HttpRequest& request, const Wake& wake);
  Reply resume(const HttpRequest& request, const Wake& wake);
  Reply is_paused(const HttpRequest& request, const Wake& wake);
  // `ask` hands its argument to a verb of the engine; the answer's body is made by `body`.
  Reply ask_engine(const Wake& wake, std::string (*body)(bool), const std::function<void(ControlAnswer)>& ask);
  [[nodiscard]] Reply refuse(const Error& error) const;
  [[nodiscard]] std::string next_id(Api api);

  EngineClient* engine_;
  const ServedModel* model_;
  const ServerOptions* options_;
  std::int64_t started_s_;
  std::uint64_t run_id_;  // keeps ids of two runs of the server apart
  std::uint64_t num_completions_ = 0;
  std::uint32_t num_asked_ = 0;  // of the engine, and not answered yet
  bool draining_ = false;
  BodyBudget body_budget_;
  ServerStats stats_;
};

}  // namespace quire
