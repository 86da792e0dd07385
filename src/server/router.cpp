#include "server/router.h"

#include <fmt/format.h>

#include <random>
#include <utility>

#include "server/api/anthropic/messages_routes.h"
#include "server/api/audio/audio_routes.h"
#include "server/api/openai/openai_routes.h"
#include "server/api/pooling/pooling_routes.h"
#include "server/api/responses/responses_routes.h"
#include "server/http/error_response.h"
#include "server/http/request_guard.h"
#include "server/operate/admin.h"
#include "server/operate/operate_routes.h"
#include "text/utf8.h"

namespace quire {

std::span<const MakeRoutes> Router::all_apis() {
  static constexpr MakeRoutes kApis[] = {operate_routes, openai_routes, messages_routes, responses_routes, pooling_routes, audio_routes};
  return kApis;
}

Router::Router(EngineClient& engine, const ServedModel& model, const ServerOptions& options, Logger& logger, Serving::Offload offload,
               std::span<const MakeRoutes> apis)
    : options_(&options),
      run_id_((std::uint64_t{std::random_device()()} << 32) | std::random_device()()),
      body_budget_(options.max_body_bytes_in_flight),
      serving_(engine, model, options, logger, std::move(offload)) {
  for (const MakeRoutes make : apis) apis_.push_back(make(serving_));
}

const Route* Router::find_route(std::string_view path, std::string_view method, std::string& allowed) const {
  for (const ApiRoutes& api : apis_) {
    for (const Route& route : api.routes) {
      const bool has_name = route.path.find('*') != std::string_view::npos;
      if (has_name ? name_in(route.path, path).empty() : route.path != path) continue;
      if (route.method == method || (route.method == "GET" && method == "HEAD")) return &route;
      allowed += (allowed.empty() ? "" : ", ") + std::string(route.method);
    }
  }
  return nullptr;
}

HttpResponse Router::in_shape_of(std::string_view path, HttpResponse response) const {
  if (response.status < 400) return response;
  for (const ApiRoutes& api : apis_)
    if (api.tell_error != nullptr && path.starts_with(api.errors_under)) return api.tell_error(std::move(response));
  return response;
}

std::string Router::next_request_id() {
  return fmt::format("{:016x}{:08x}", run_id_, num_requests_++);
}

std::optional<HttpResponse> Router::answer_early(const HttpRequest& request) const {
  std::string allowed;
  const Route* route = find_route(request.path(), request.method, allowed);
  if (auto answer = guard_request(request, *options_, route != nullptr && route->takes_form)) return answer;
  if (route != nullptr && route->access == Access::open) return std::nullopt;
  const auto tenant = serving_.keys().tenant_of(request.authorization);
  if (!tenant) return error_response(401, tenant.error());
  if (route == nullptr) return no_route(request, allowed);
  if (route->access != Access::key && !tenant->empty())
    return error_response(403, {ErrorCode::invalid_argument, "Authorization",
                                "holds a tenant's key, and this is for who operates the server", "send the server's own key (--api-key)"});
  if (route->access == Access::admin) {
    if (const auto admitted = admit_operator(request, *options_); !admitted) return error_response(403, admitted.error());
  }
  return std::nullopt;
}

HttpResponse Router::no_route(const HttpRequest& request, const std::string& allowed) {
  const std::string shown = repair_utf8(request.path().substr(0, 200));
  if (allowed.empty()) {
    return error_response({ErrorCode::not_found, "", fmt::format("there is no '{}' here", shown),
                           "see /v1/models, /v1/chat/completions and /v1/completions"});
  }
  HttpResponse response = error_response(
      405, {ErrorCode::invalid_argument, "", fmt::format("'{}' does not take {}", shown, request.method), fmt::format("use {}", allowed)});
  response.headers.emplace_back("Allow", allowed);
  return response;
}

Reply Router::handle(HttpRequest& request, const Wake& wake) {
  std::string allowed;
  const Route* route = find_route(request.path(), request.method, allowed);
  return serving_.guard(request.id, [&] { return route->handle(request, wake); });
}

}  // namespace quire
