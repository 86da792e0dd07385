#pragma once
// Which API answers which request.
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

// Server's thread only.
class Router final : public RequestHandler {
 public:
  // Those that the server has.
  [[nodiscard]] static std::span<const MakeRoutes> all_apis();

  // As Serving. Of routes of one path and method the first counts.
  Router(EngineClient& engine, const ServedModel& model, const ServerOptions& options, Logger& logger, Serving::Offload offload,
         std::span<const MakeRoutes> apis = all_apis());

  [[nodiscard]] std::optional<HttpResponse> answer_early(const HttpRequest& request) const override;
  [[nodiscard]] Reply handle(HttpRequest& request, const Wake& wake) override;
  [[nodiscard]] HttpResponse in_shape_of(std::string_view path, HttpResponse response) const override;
  [[nodiscard]] std::string next_request_id() override;
  [[nodiscard]] BodyBudget& body_budget() override { return body_budget_; }
  [[nodiscard]] RequestLog& log() override { return serving_.log(); }
  [[nodiscard]] ServerStats& stats() override { return serving_.stats(); }

  // From now on no completion starts, and /health and /ready say so.
  void drain() { serving_.drain(); }

 private:
  // Null: there is none; `allowed`: methods that the path takes.
  [[nodiscard]] const Route* find_route(std::string_view path, std::string_view method, std::string& allowed) const;
  [[nodiscard]] static HttpResponse no_route(const HttpRequest& request, const std::string& allowed);

  const ServerOptions* options_;
  std::uint64_t run_id_;  // keeps ids of two runs of the server apart
  std::uint64_t num_requests_ = 0;
  BodyBudget body_budget_;
  Serving serving_;
  std::vector<ApiRoutes> apis_;
};

}  // namespace quire
