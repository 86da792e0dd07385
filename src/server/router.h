#pragma once
// Chooses the route for a request and runs its handler.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/server_options.h"
#include "server/api/routes.h"
#include "server/api/serving.h"
#include "server/http/request_handler.h"

namespace quire {

// Used on the server's thread only.
class Router final : public RequestHandler {
 public:
  // Returns the APIs of the server.
  [[nodiscard]] static std::span<const MakeRoutes> all_apis();

  // Passes its arguments except `apis` to Serving. If several routes have the same path and method, the first one is used.
  Router(EngineClient& engine, const ServedModel& model, const ServerOptions& options, Logger& logger, Serving::SubmitJob submit_job,
         std::span<const MakeRoutes> apis = all_apis());

  [[nodiscard]] std::optional<HttpResponse> answer_early(const HttpRequest& request) const override;
  [[nodiscard]] std::string client_of(const HttpRequest& request) const override;
  [[nodiscard]] bool is_operator_request(const HttpRequest& request) const override;
  [[nodiscard]] Reply handle(HttpRequest& request, const Wake& wake) override;
  [[nodiscard]] HttpResponse format_for_path(std::string_view path, HttpResponse response) const override;
  [[nodiscard]] std::string next_request_id() override;
  [[nodiscard]] BodyBudget& body_budget() override { return body_budget_; }
  [[nodiscard]] BodyReaders& body_readers() override { return body_readers_; }
  [[nodiscard]] RequestLog& log() override { return serving_.log(); }
  [[nodiscard]] ServerStats& stats() override { return serving_.stats(); }

  // After this call, no completion starts, and /health and /ready report that the server is shutting down.
  void drain() { serving_.drain(); }

 private:
  // Returns null if there is no route with this path and method; `allowed` then receives the methods that the path supports.
  [[nodiscard]] const Route* find_route(std::string_view path, std::string_view method, std::string& allowed) const;
  [[nodiscard]] HttpResponse no_route(const HttpRequest& request, const std::string& allowed) const;
  // Returns the remedy for an unknown path: a similar path that exists, or the list of paths.
  [[nodiscard]] std::string routes_instead_of(std::string_view path) const;

  const ServerOptions* options_;
  std::uint64_t run_id_;  // random, so that ids of two runs of the server differ
  std::uint64_t num_requests_ = 0;
  BodyBudget body_budget_;
  BodyReaders body_readers_;
  Serving serving_;
  std::vector<ApiRoutes> apis_;
};

}  // namespace quire
