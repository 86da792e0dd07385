#pragma once
// Answers the requests of a server with several models: lists and states itself, all others through the processes of the models.
#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "quire/base/logger.h"
#include "quire/server_options.h"
#include "server/http/request_handler.h"
#include "server/http/tenants.h"
#include "server/models/model_pool.h"

namespace quire {

// Used on the server's thread only.
class ModelsRouter final : public RequestHandler {
 public:
  // All arguments must outlive this object.
  ModelsRouter(boost::asio::io_context& io, ModelPool& pool, const ServerOptions& options, Logger& logger);

  [[nodiscard]] std::optional<HttpResponse> answer_early(const HttpRequest& request) const override;
  [[nodiscard]] std::string client_of(const HttpRequest& request) const override;
  [[nodiscard]] bool is_operator_request(const HttpRequest& request) const override;
  [[nodiscard]] Reply handle(HttpRequest& request, const Wake& wake) override;
  [[nodiscard]] HttpResponse format_for_path(std::string_view path, HttpResponse response) const override;
  [[nodiscard]] std::string next_request_id() override;
  [[nodiscard]] BodyBudget& body_budget() override { return body_budget_; }
  [[nodiscard]] BodyReaders& body_readers() override { return body_readers_; }
  [[nodiscard]] RequestLog& log() override { return log_; }
  [[nodiscard]] ServerStats& stats() override { return stats_; }

  // After this call, no request to a model starts, and /health and /ready report that the server is shutting down.
  void drain() { is_draining_ = true; }

 private:
  struct Route;
  // Returns null if the request is for a model. Then `allowed` is the method of the route with this path; empty: no such route.
  [[nodiscard]] static const Route* find_route(const HttpRequest& request, std::string* allowed = nullptr);
  [[nodiscard]] Reply health(HttpRequest& request);
  [[nodiscard]] Reply metrics(HttpRequest& request);
  [[nodiscard]] Reply page(HttpRequest& request);
  [[nodiscard]] Reply version(HttpRequest& request);
  [[nodiscard]] Reply list_models(HttpRequest& request);
  [[nodiscard]] Reply list_running(HttpRequest& request);
  [[nodiscard]] Reply list_ollama(HttpRequest& request);
  [[nodiscard]] Reply list_ollama_running(HttpRequest& request);
  [[nodiscard]] Reply ollama_version(HttpRequest& request);
  [[nodiscard]] Reply unload(HttpRequest& request);
  [[nodiscard]] Reply read_model(std::string_view name);
  // Returns whether the target is a path of a loaded model.
  [[nodiscard]] bool is_loaded(std::string_view target) const;
  // Answers a request to a path of one model: "/upstream/NAME/...".
  [[nodiscard]] Reply handle_upstream(HttpRequest& request, const Wake& wake);
  // Passes a request on. A POST loads the model; other requests are answered only if the model is loaded, and do not keep it loaded.
  [[nodiscard]] Reply proxy(HttpRequest& request, const Wake& wake, std::size_t model, std::optional<double> keep_alive_s);
  [[nodiscard]] Reply refuse(const Error& error) const;
  [[nodiscard]] const std::vector<ModelEntry>& entries() const { return pool_->options().entries; }

  boost::asio::io_context* io_;
  ModelPool* pool_;
  const ServerOptions* options_;
  ApiKeys keys_;
  std::uint64_t run_id_;  // random, so that ids of two runs of the server differ
  std::uint64_t num_requests_ = 0;
  std::int64_t started_s_;
  BodyBudget body_budget_;
  BodyReaders body_readers_;
  RequestLog log_;
  ServerStats stats_;
  bool is_draining_ = false;
};

}  // namespace quire
