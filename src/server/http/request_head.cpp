// From the header that Boost.Beast has parsed to HttpRequest, and the refusals of what is no good request. On the server's thread, before
// the body is read, for every connection: so it costs little and keeps nothing. A client's own request id goes into logs and headers, so
// only harmless ones are taken.
#include "server/http/request_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/beast/http.hpp>
#include <iterator>

#include "server/http/error_response.h"
#include "server/http/host_name.h"
#include "server/http/local_client.h"

namespace quire {

namespace beast = boost::beast;
namespace http = beast::http;
using boost::asio::ip::tcp;

namespace {

std::string text_of(beast::string_view view) {
  return {view.data(), view.size()};
}

std::vector<std::string> lines_of(const http::fields& fields, beast::string_view name) {
  std::vector<std::string> lines;
  const auto [begin, end] = fields.equal_range(name);
  for (auto field = begin; field != end; ++field) lines.push_back(text_of(field->value()));
  return lines;
}

bool is_proxy_header(beast::string_view name) {
  return beast::iequals(name, "Via") || beast::iequals(name, "X-Real-IP") ||
         (name.size() > 12 && beast::iequals(name.substr(0, 12), "X-Forwarded-"));
}

ClientTrace trace_of(const tcp::socket& socket, const http::request_header<>& header) {
  boost::system::error_code ignored;
  return {.peer = socket.remote_endpoint(ignored).address(),
          .local = socket.local_endpoint(ignored),
          .http_version = header.version(),
          .host = text_of(header[http::field::host]),
          .forwarded = lines_of(header, "Forwarded"),
          .forwarded_for = lines_of(header, "X-Forwarded-For"),
          .has_proxy_header = std::ranges::any_of(header, [](const auto& field) { return is_proxy_header(field.name_string()); })};
}

// Short, and of characters that every log and header takes as they are.
bool is_request_id(std::string_view text) {
  constexpr std::size_t kMaxBytes = 128;
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
  };
  return !text.empty() && text.size() <= kMaxBytes && std::ranges::all_of(text, allowed);
}

// Headers in which agents name their sessions: Claude Code, Codex, opencode and those that follow them.
constexpr const char* kSessionHeaders[] = {"X-Claude-Code-Session-Id", "session_id",        "session-id", "X-Session-Id",
                                           "x-opencode-session",       "x-session-affinity"};

std::string session_of(const http::request_header<>& header) {
  for (const char* name : kSessionHeaders)
    if (const auto value = header[name]; is_request_id({value.data(), value.size()})) return text_of(value);
  return {};
}

HttpResponse not_http(const std::string& why) {
  return error_response(400, {ErrorCode::invalid_argument, "", "this is not HTTP/1.1: " + why, "speak HTTP/1.1"});
}

}  // namespace

HttpResponse too_many_bodies(const ServerOptions& options) {
  return error_response(503,
                        {ErrorCode::overloaded, "", "bodies of other requests fill the memory that is set aside for them",
                         "try again, or serve with a larger --max-body-bytes-in-flight"},
                        options.retry_after_s);
}

HttpResponse too_large_a_body(const ServerOptions& options) {
  return error_response(413, {ErrorCode::too_large, "", fmt::format("the body has more than {} bytes", options.max_body_bytes),
                              "send a smaller one, or raise --max-body-bytes"});
}

std::optional<HttpResponse> refusal_of(const boost::system::error_code& code, const RequestHeader& header, const ServerOptions& options) {
  if (code == http::error::body_limit) return too_large_a_body(options);
  const auto num_fields = std::distance(header.begin(), header.end());
  if (code == http::error::header_limit || (!code && num_fields > options.max_header_fields)) {
    return error_response(
        431,
        {ErrorCode::too_large, "",
         fmt::format("more than {} bytes or {} fields of headers", options.max_header_bytes, options.max_header_fields), "send fewer"});
  }
  if (!code && header.version() >= 11 && header.count(http::field::host) != 1) return not_http("it has not one Host");
  const bool is_http_error = code && code.category() == http::make_error_code(http::error::bad_target).category();
  if (!is_http_error || code == http::error::end_of_stream || code == http::error::partial_message) return std::nullopt;
  return not_http(code.message());
}

void take_head(const RequestParser& parser, const tcp::socket& socket, const ServerOptions& options, HttpRequest& request) {
  const auto& header = parser.get();
  const ClientTrace trace = trace_of(socket, header);
  request.method = text_of(header.method_string());
  request.target = text_of(header.target());
  request.authorization = text_of(header[http::field::authorization]);
  // Anthropic's clients.
  if (const auto key = text_of(header["x-api-key"]); request.authorization.empty() && !key.empty()) request.authorization = "Bearer " + key;
  request.session = session_of(header);
  request.trace = parse_traceparent(text_of(header["traceparent"]));
  request.is_beta = header.count("anthropic-beta") > 0;
  const auto id = header[kRequestId];
  if (is_request_id({id.data(), id.size()})) request.id = text_of(id);
  request.content_type = text_of(header[http::field::content_type]);
  request.host = trace.host;
  if (header.count(http::field::origin) > 0) request.origin = text_of(header[http::field::origin]);
  request.preflight_method = text_of(header[http::field::access_control_request_method]);
  request.preflight_headers = text_of(header[http::field::access_control_request_headers]);
  request.has_body = !parser.is_done();
  request.over_loopback = plain_address(trace.local.address()).is_loopback();
  request.is_local = is_local_client(trace, options.trusted_proxies);
}

}  // namespace quire
