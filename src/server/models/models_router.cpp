// Runs on the server's thread. The API keys are checked here, before a body is read, and again by the processes of the models, which other
// users of the machine could reach.
#include "server/models/models_router.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <memory>
#include <random>
#include <utility>

#include "base/json_writer.h"
#include "quire/base/version.h"
#include "server/api/anthropic/messages_answer.h"
#include "server/api/ollama/ollama_answer.h"
#include "server/api/ollama/ollama_models.h"
#include "server/api/routes.h"
#include "server/http/error_response.h"
#include "server/http/query.h"
#include "server/http/request_guard.h"
#include "server/models/model_lists.h"
#include "server/models/model_names.h"
#include "server/models/models_metrics.h"
#include "server/models/proxy_answer.h"
#include "server/models/requested_model.h"
#include "server/models/upstream_headers.h"
#include "server/models/upstream_path.h"
#include "server/operate/admin.h"
#include "server/operate/chat_page.h"
#include "server/operate/page_reply.h"

namespace quire {

namespace {

constexpr std::string_view kModelPath = "/v1/models/**", kUnloadPath = "/api/models/unload/**", kOllamaPrefix = "/api/";

Reply json_reply(std::string body) {
  return {HttpResponse{200, "application/json", std::move(body), {}}};
}

bool is_read(const HttpRequest& request) {
  return request.method == "GET" || request.method == "HEAD";
}

bool expects_form(std::string_view path) {
  return path.find("/v1/audio/") != std::string_view::npos;
}

}  // namespace

struct ModelsRouter::Route {
  std::string_view path, method;
  Access access;
  Reply (ModelsRouter::*handle)(HttpRequest& request);
};

const ModelsRouter::Route* ModelsRouter::find_route(const HttpRequest& request, std::string* allowed) {
  using R = ModelsRouter;
  static constexpr Route kRoutes[] = {
      {"/", "GET", Access::open, &R::page},
      {"/health", "GET", Access::open, &R::health},
      {"/ready", "GET", Access::open, &R::health},
      {"/version", "GET", Access::key, &R::version},
      {"/metrics", "GET", Access::server_key, &R::metrics},
      {"/v1/models", "GET", Access::key, &R::list_models},
      {kModelPath, "GET", Access::key, &R::list_models},
      {"/running", "GET", Access::key, &R::list_running},
      {"/unload", "POST", Access::admin, &R::unload},
      {"/api/models/unload", "POST", Access::admin, &R::unload},
      {kUnloadPath, "POST", Access::admin, &R::unload},
      {"/api/tags", "GET", Access::key, &R::list_ollama},
      {"/api/ps", "GET", Access::key, &R::list_ollama_running},
      {"/api/version", "GET", Access::key, &R::ollama_version},
  };
  for (const Route& route : kRoutes) {
    const bool has_name = route.path.ends_with("**");
    if (has_name ? path_parameter(route.path, request.path()).empty() : route.path != request.path()) continue;
    if (route.method == request.method || (route.method == "GET" && request.method == "HEAD")) return &route;
    if (allowed != nullptr) *allowed = route.method;
  }
  return nullptr;
}

ModelsRouter::ModelsRouter(boost::asio::io_context& io, ModelPool& pool, const ServerOptions& options, Logger& logger)
    : io_(&io),
      pool_(&pool),
      options_(&options),
      keys_(options),
      run_id_((std::uint64_t{std::random_device()()} << 32) | std::random_device()()),
      started_s_(std::time(nullptr)),
      body_budget_(options.max_body_bytes_in_flight),
      log_(logger, options.log_slow_ms) {
  stats_.bodies = &body_budget_;
}

std::string ModelsRouter::next_request_id() {
  return fmt::format("{:016x}{:08x}", run_id_, num_requests_++);
}

Reply ModelsRouter::refuse(const Error& error) const {
  return {error_response(error, options_->retry_after_s)};
}

std::optional<HttpResponse> ModelsRouter::answer_early(const HttpRequest& request) const {
  if (auto answer = guard_request(request, *options_, expects_form(request.path()))) return answer;
  const Route* const route = find_route(request);
  if (route != nullptr && route->access == Access::open) return std::nullopt;
  // Pages of a loaded model need no key. Its process checks the key of all other requests. Other models are not named without a key.
  if (is_read(request) && is_loaded(request.target)) return std::nullopt;
  const auto tenant = keys_.tenant_of(request.authorization);
  if (!tenant) return error_response(401, tenant.error());
  if (route == nullptr || route->access == Access::key) return std::nullopt;
  if (!tenant->empty())
    return error_response(
        403, {ErrorCode::invalid_argument, "Authorization", "contains a tenant's key, but this endpoint requires the server's own key",
              "send the server's own key (--api-key)"});
  if (route->access == Access::admin)
    if (const auto admitted = admit_operator(request, *options_); !admitted) return error_response(403, admitted.error());
  return std::nullopt;
}

bool ModelsRouter::is_loaded(std::string_view target) const {
  if (!is_upstream_path(target)) return false;
  const auto found = find_upstream(entries(), target);
  return found && pool_->status(found->model).state == ModelState::ready;
}

std::string ModelsRouter::client_of(const HttpRequest& request) const {
  const std::string tenant = keys_.tenant_of(request.authorization).value_or("");
  return tenant.empty() ? request.address : "tenant " + tenant;
}

bool ModelsRouter::is_operator_request(const HttpRequest& request) const {
  return find_route(request) != nullptr || is_read(request);
}

// The processes of the models have already formatted their errors, which have no error_code here.
HttpResponse ModelsRouter::format_for_path(std::string_view path, HttpResponse response) const {
  if (response.error_code.empty()) return response;
  const auto upstream = is_upstream_path(path) ? find_upstream(entries(), path) : Result<UpstreamTarget>();
  if (upstream && !upstream->rest.empty()) path = upstream->rest;
  if (path.starts_with("/v1/messages")) return as_messages_error(std::move(response));
  if (path.starts_with(kOllamaPrefix)) return as_ollama_error(std::move(response));
  return response;
}

Reply ModelsRouter::handle(HttpRequest& request, const Wake& wake) {
  std::string allowed;
  if (const Route* const route = find_route(request, &allowed)) return (this->*route->handle)(request);
  if (!allowed.empty()) {
    HttpResponse response = error_response(
        405, {ErrorCode::invalid_argument, "", fmt::format("'{}' does not support {}", shown(request.path()), request.method),
              fmt::format("use {}", allowed)});
    response.headers.emplace_back("Allow", allowed);
    return {std::move(response)};
  }
  if (is_upstream_path(request.path())) return handle_upstream(request, wake);
  if (request.method != "POST") return proxy(request, wake, 0, std::nullopt);
  const bool is_ollama = request.path().starts_with(kOllamaPrefix);
  const RequestedModel requested = read_requested_model(request.body, request.content_type, is_ollama);
  const auto model = find_entry(entries(), requested.model, is_ollama);
  if (!model) return refuse(model.error());
  const bool generates = request.path() == "/api/generate" || request.path() == "/api/chat";
  const bool is_unload = generates && !requested.has_input && requested.keep_alive_s == 0.0;
  if (is_unload && pool_->status(*model).state == ModelState::stopped)
    return json_reply(loaded_answer({.model = requested.model, .is_chat = request.path() == "/api/chat"}, true));
  // Clients show all models of a list, which must not load them.
  if (const std::string& show = entries()[*model].facts.ollama_show; request.path() == "/api/show" && !show.empty())
    if (pool_->status(*model).state != ModelState::ready) return json_reply(show);
  return proxy(request, wake, *model, requested.keep_alive_s);
}

Reply ModelsRouter::handle_upstream(HttpRequest& request, const Wake& wake) {
  const auto target = find_upstream(entries(), request.target);
  if (!target) return refuse(target.error());
  if (!target->rest.starts_with('/')) {
    const std::string_view query = std::string_view(request.target).substr(request.path().size());
    HttpResponse moved{308, "", {}, {{"Location", fmt::format("{}/{}", request.path(), query)}}};
    return {std::move(moved)};
  }
  request.target = target->rest;
  return proxy(request, wake, target->model, std::nullopt);
}

Reply ModelsRouter::proxy(HttpRequest& request, const Wake& wake, std::size_t model, std::optional<double> keep_alive_s) {
  if (is_draining_) return refuse({ErrorCode::shutting_down, "", "the server is shutting down", "send the request to another server"});
  const bool is_post = request.method == "POST";
  const std::uint16_t port = pool_->status(model).port;
  if (!is_post && port == 0)
    return refuse({ErrorCode::unavailable, "model", fmt::format("'{}' is not loaded", entries()[model].name),
                   fmt::format("send it a request first; {} /upstream/NAME{} reaches another model", request.method, request.path())});
  UpstreamRequest sent{.method = request.method == "HEAD" ? "GET" : request.method,
                       .target = request.target,
                       .headers = upstream_headers(request, !options_->api_key.empty()),
                       .body = std::move(request.body),
                       .body_lease = std::move(request.body_lease)};
  auto answer = std::make_shared<ProxyAnswer>(*io_, std::move(sent), wake, options_->retry_after_s);
  if (is_post)
    answer->send_to(*pool_, model, keep_alive_s);
  else
    answer->send_to_port(port);
  return {HttpResponse{}, std::move(answer)};
}

Reply ModelsRouter::health(HttpRequest& request) {
  if (is_draining_) return refuse({ErrorCode::shutting_down, "", "the server is shutting down", ""});
  return json_reply(json_object([&](JsonWriter& json) { json.field("status", request.path() == "/ready" ? "ready" : "ok"); }));
}

Reply ModelsRouter::page(HttpRequest& /*request*/) {
  static const std::string policy = page_policy(chat_page_html());
  return page_reply(chat_page_html(), policy);
}

Reply ModelsRouter::version(HttpRequest& /*request*/) {
  return json_reply(json_object([](JsonWriter& json) { json.field("version", kVersion); }));
}

Reply ModelsRouter::metrics(HttpRequest& /*request*/) {
  return {HttpResponse{200, "text/plain; version=0.0.4; charset=utf-8", models_metrics_text(*pool_), {}}};
}

Reply ModelsRouter::list_models(HttpRequest& request) {
  const std::string_view name = path_parameter(kModelPath, request.path());
  return name.empty() ? json_reply(models_json(*pool_, started_s_)) : read_model(name);
}

Reply ModelsRouter::read_model(std::string_view name) {
  const auto id = decoded_path(name);
  if (!id) return refuse({ErrorCode::invalid_argument, "model", "is not correctly percent-encoded", "percent-encode it"});
  const auto model = find_entry(entries(), *id);
  if (!model) return refuse(model.error());
  return json_reply(model_json(*pool_, *model, *id, started_s_));
}

Reply ModelsRouter::list_running(HttpRequest& /*request*/) {
  return json_reply(running_json(*pool_));
}

Reply ModelsRouter::list_ollama(HttpRequest& /*request*/) {
  return json_reply(ollama_list(ollama_entries(*pool_, false, started_s_)));
}

Reply ModelsRouter::list_ollama_running(HttpRequest& /*request*/) {
  return json_reply(ollama_running_list(ollama_entries(*pool_, true, started_s_)));
}

Reply ModelsRouter::ollama_version(HttpRequest& /*request*/) {
  return json_reply(json_object([](JsonWriter& json) { json.field("version", kOllamaVersion).field("quire_version", kVersion); }));
}

// Unloads the model in the path or in ?model=NAME, or all models.
Reply ModelsRouter::unload(HttpRequest& request) {
  QueryReader query(request.target);
  std::string name = query.text("model", "");
  if (const auto done = query.finish(); !done) return refuse(done.error());
  if (const auto in_path = path_parameter(kUnloadPath, request.path()); !in_path.empty()) name = decoded_path(in_path).value_or("");
  const auto only = find_entry(entries(), name);
  if (!only) return refuse(only.error());
  std::vector<std::string> unloaded, busy;
  for (std::size_t i = 0; i < entries().size(); ++i) {
    if (!name.empty() && i != *only) continue;
    const ModelState state = pool_->status(i).state;
    if (pool_->unload(i))
      unloaded.push_back(entries()[i].name);
    else if (state == ModelState::loading || state == ModelState::ready)
      busy.push_back(entries()[i].name);
  }
  return json_reply(json_object([&](JsonWriter& json) { json.field("unloaded", unloaded).field("busy", busy); }));
}

}  // namespace quire
