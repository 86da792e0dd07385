#include "server/http/request_guard.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/http/error_response.h"
#include "server/http/host_name.h"

namespace quire {

namespace {

bool may_use(const std::string& origin, const ServerOptions& options) {
  return std::ranges::any_of(options.cors_allow_origins,
                             [&](const std::string& allowed) { return allowed == "*" || to_lower(allowed) == to_lower(origin); });
}

// Returns whether Host names this server. An attacker can make a web page's own host name resolve to this server (DNS rebinding). Host is
// checked for connections over loopback, even if keys are set, and for other connections only if no key is set. Outside loopback, an IP
// address is always accepted, because DNS rebinding requires a name.
bool is_known_host(const HttpRequest& request, const ServerOptions& options) {
  const bool is_open = options.api_key.empty() && options.tenant_keys.empty();
  // HTTP/1.0 clients may omit Host. Browsers always send Host.
  if (!(request.over_loopback || is_open) || request.host.empty()) return true;
  const auto host = parse_host_name(request.host);
  if (!host) return false;
  if (host->address && (!request.over_loopback || host->address->is_unspecified())) return true;
  const auto is_it = [&](const std::string& allowed) { return allowed == "*" || parse_host_name(allowed)->name == host->name; };
  return host->is_loopback() || std::ranges::any_of(options.allowed_hosts, is_it);
}

// Returns whether the Origin `from` is a page of this server, whose Host is `of`. Ignores the scheme, because a proxy may provide HTTPS for
// this server.
bool is_own_page(std::string_view from, std::string_view of) {
  const std::string origin = to_lower(from), host = to_lower(of);
  return !host.empty() && (origin == "http://" + host || origin == "https://" + host);
}

bool is_media(const std::string& content_type, std::string_view wanted) {
  const std::string media = to_lower(content_type.substr(0, content_type.find(';')));
  const std::size_t end = media.find_last_not_of(" \t");
  return media.substr(0, end == std::string::npos ? 0 : end + 1) == wanted;
}

HttpResponse answer_preflight(const HttpRequest& request) {
  HttpResponse response{204, "", {}, {{"Access-Control-Allow-Methods", "GET, POST, DELETE"}, {"Access-Control-Max-Age", "600"}}};
  if (!request.preflight_headers.empty()) response.headers.emplace_back("Access-Control-Allow-Headers", request.preflight_headers);
  return response;
}

}  // namespace

std::optional<HttpResponse> guard_request(const HttpRequest& request, const ServerOptions& options, bool expects_form_data) {
  if (!is_known_host(request, options)) {
    return error_response(
        421, {ErrorCode::invalid_argument, "Host", fmt::format("'{}' is not an allowed name of this server", shown(request.host)),
              "use localhost, or start the server with --allowed-host NAME"});
  }
  if (request.origin && !is_own_page(*request.origin, request.host)) {
    if (!may_use(*request.origin, options)) {
      return error_response(403,
                            {ErrorCode::invalid_argument, "Origin", fmt::format("'{}' is not an allowed origin", shown(*request.origin)),
                             "start the server with --cors-allow-origin ORIGIN"});
    }
    if (request.method == "OPTIONS" && !request.preflight_method.empty()) return answer_preflight(request);
  }
  const bool must_be_json = request.has_body || (request.method == "POST" && !request.content_type.empty());
  const std::string_view media = expects_form_data ? "multipart/form-data" : "application/json";
  if (must_be_json && !is_media(request.content_type, media)) {
    return error_response(
        415,
        {ErrorCode::invalid_argument, "Content-Type",
         request.content_type.empty() ? "is missing" : fmt::format("'{}' is not supported by this endpoint", shown(request.content_type)),
         expects_form_data ? "send a form with 'Content-Type: multipart/form-data; boundary=...'"
                           : "send JSON with 'Content-Type: application/json'"});
  }
  return std::nullopt;
}

HttpHeaders cors_headers(const HttpRequest& request, const ServerOptions& options) {
  if (!request.origin || !may_use(*request.origin, options)) return {};
  return {{"Access-Control-Allow-Origin", *request.origin}, {"Access-Control-Expose-Headers", "*"}, {"Vary", "Origin"}};
}

}  // namespace quire
