#include "server/router.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <utility>

#include "server/api/anthropic/messages_routes.h"
#include "server/api/audio/audio_routes.h"
#include "server/api/llama_cpp/llama_cpp_routes.h"
#include "server/api/ollama/ollama_routes.h"
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
  static constexpr MakeRoutes kApis[] = {operate_routes, openai_routes, messages_routes,  responses_routes,
                                         pooling_routes, ollama_routes, llama_cpp_routes, audio_routes};
  return kApis;
}

Router::Router(EngineClient& engine, const ServedModel& model, const ServerOptions& options, Logger& logger, Serving::SubmitJob submit_job,
               std::span<const MakeRoutes> apis)
    : options_(&options),
      run_id_((std::uint64_t{std::random_device()()} << 32) | std::random_device()()),
      body_budget_(options.max_body_bytes_in_flight),
      serving_(engine, model, options, logger, std::move(submit_job)) {
  serving_.stats().bodies = &body_budget_;
  for (const MakeRoutes make : apis) apis_.push_back(make(serving_));
}

// Returns the route for a path and a method, or null. If a route has the path literally, "*" in other routes does not match it.
const Route* Router::find_route(std::string_view path, std::string_view method, std::string& allowed) const {
  const bool is_literal = std::ranges::any_of(
      apis_, [path](const ApiRoutes& api) { return std::ranges::find(api.routes, path, &Route::path) != api.routes.end(); });
  for (const ApiRoutes& api : apis_) {
    for (const Route& route : api.routes) {
      const bool has_name = route.path.find('*') != std::string_view::npos;
      if (has_name ? is_literal || path_parameter(route.path, path).empty() : route.path != path) continue;
      if (route.method == method || (route.method == "GET" && method == "HEAD")) return &route;
      allowed += (allowed.empty() ? "" : ", ") + std::string(route.method);
    }
  }
  return nullptr;
}

HttpResponse Router::format_for_path(std::string_view path, HttpResponse response) const {
  if (response.status < 400) return response;
  for (const ApiRoutes& api : apis_)
    if (api.convert_error != nullptr && path.starts_with(api.error_path_prefix)) return api.convert_error(std::move(response));
  return response;
}

std::string Router::next_request_id() {
  return fmt::format("{:016x}{:08x}", run_id_, num_requests_++);
}

std::optional<HttpResponse> Router::answer_early(const HttpRequest& request) const {
  std::string allowed;
  const Route* route = find_route(request.path(), request.method, allowed);
  if (auto answer = guard_request(request, *options_, route != nullptr && route->expects_form_data)) return answer;
  if (route != nullptr && route->access == Access::open) return std::nullopt;
  const auto tenant = serving_.keys().tenant_of(request.authorization);
  if (!tenant) return error_response(401, tenant.error());
  if (route == nullptr) return no_route(request, allowed);
  if (route->access != Access::key && !tenant->empty())
    return error_response(
        403, {ErrorCode::invalid_argument, "Authorization", "contains a tenant's key, but this endpoint requires the server's own key",
              "send the server's own key (--api-key)"});
  if (route->access == Access::admin) {
    if (const auto admitted = admit_operator(request, *options_); !admitted) return error_response(403, admitted.error());
  }
  return std::nullopt;
}

std::string Router::client_of(const HttpRequest& request) const {
  // The server's own key does not identify a client, so clients with this key are distinguished by address, as in a server without keys.
  const std::string tenant = serving_.keys().tenant_of(request.authorization).value_or("");
  return tenant.empty() ? request.address : "tenant " + tenant;
}

bool Router::is_operator_request(const HttpRequest& request) const {
  std::string allowed;
  const Route* route = find_route(request.path(), request.method, allowed);
  return route != nullptr && route->access != Access::key;
}

// A wrong path usually has one "/v1" too many or too few, because the base URL is wrong.
std::string Router::routes_instead_of(std::string_view path) const {
  constexpr std::string_view kVersion = "/v1";
  const auto exists = [this](std::string_view other) {
    std::string methods;
    return find_route(other, "", methods) != nullptr || !methods.empty();
  };
  if (const std::string longer = fmt::format("{}{}", kVersion, path); exists(longer))
    return fmt::format("use {}; the base URL ends with /v1", longer);
  if (path.starts_with("/v1/v1/")) {
    if (const std::string_view shorter = path.substr(kVersion.size()); exists(shorter)) return fmt::format("use {}", shown(shorter));
  }
  const auto list = [this](std::string_view beginning) {
    std::string paths;
    for (const ApiRoutes& api : apis_)
      for (const Route& route : api.routes)
        if (route.method == "POST" && route.access == Access::key && route.path.find('*') == std::string_view::npos &&
            route.path.starts_with(beginning))
          paths += fmt::format("{}{}", paths.empty() ? "" : ", ", route.path);
    return paths;
  };
  // The routes of the same API, such as "/api/", or else all routes.
  std::string paths = list(path.substr(0, path.find('/', 1) + 1));
  if (paths.empty()) paths = list({});
  return fmt::format("use one of {}; /docs describes all routes", paths);
}

HttpResponse Router::no_route(const HttpRequest& request, const std::string& allowed) const {
  const std::string shown = repair_utf8(request.path().substr(0, 200));
  if (allowed.empty()) {
    return error_response(
        {ErrorCode::not_found, "", fmt::format("there is no route '{}' on this server", shown), routes_instead_of(request.path())});
  }
  HttpResponse response = error_response(
      405,
      {ErrorCode::invalid_argument, "", fmt::format("'{}' does not support {}", shown, request.method), fmt::format("use {}", allowed)});
  response.headers.emplace_back("Allow", allowed);
  return response;
}

Reply Router::handle(HttpRequest& request, const Wake& wake) {
  std::string allowed;
  const Route* route = find_route(request.path(), request.method, allowed);
  return serving_.guard(request.id, [&] { return route->handle(request, wake); });
}

}  // namespace quire
