// Converts the header that Boost.Beast has parsed into an HttpRequest, and refuses invalid requests. Runs on the server's thread for every
// request, before the body is read, so it must be cheap. A client's request id is written to logs and headers, so only ids of harmless
// characters are accepted.
#include "server/http/request_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/beast/http.hpp>
#include <iterator>

#include "base/trim.h"
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

ClientNetworkInfo network_info_of(const tcp::socket& socket, const http::request_header<>& header) {
  boost::system::error_code ignored;
  return {.peer = socket.remote_endpoint(ignored).address(),
          .local = socket.local_endpoint(ignored),
          .http_version = header.version(),
          .host = text_of(header[http::field::host]),
          .forwarded = lines_of(header, "Forwarded"),
          .forwarded_for = lines_of(header, "X-Forwarded-For"),
          .has_proxy_header = std::ranges::any_of(header, [](const auto& field) { return is_proxy_header(field.name_string()); })};
}

// Returns whether the text is short and has only characters that need no escape in logs and headers.
bool is_request_id(std::string_view text) {
  constexpr std::size_t kMaxBytes = 128;
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
  };
  return !text.empty() && text.size() <= kMaxBytes && std::ranges::all_of(text, allowed);
}

// Headers in which agents send their session ids: Claude Code, Codex, opencode and compatible agents.
constexpr const char* kSessionHeaders[] = {"X-Claude-Code-Session-Id", "session_id",        "session-id", "X-Session-Id",
                                           "x-opencode-session",       "x-session-affinity"};

std::string session_of(const http::request_header<>& header) {
  for (const char* name : kSessionHeaders)
    if (const auto value = header[name]; is_request_id({value.data(), value.size()})) return text_of(value);
  return {};
}

bool is_token_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

// The headers that determine where a request ends, collected from the lines read so far.
struct Framing {
  bool is_chunked = false, has_length = false;

  // Returns the error of a header whose lines are each valid, or an empty string.
  [[nodiscard]] std::string problem(bool is_old) const {
    if (is_chunked && has_length) return "it has both Transfer-Encoding and Content-Length";
    return is_chunked && is_old ? "HTTP/1.0 does not support Transfer-Encoding" : "";
  }
  // Adds one line. Returns the error of the line, or an empty string.
  std::string add(std::string_view line) {
    const std::size_t colon = line.find(':');
    if (colon == 0 || colon == std::string_view::npos || !std::ranges::all_of(line.substr(0, colon), is_token_character))
      return line.starts_with(' ') || line.starts_with('\t') ? "it has a folded header line" : "it has a header line without a valid name";
    const std::string name = to_lower(line.substr(0, colon));
    const std::string_view value = trim(line.substr(colon + 1), " \t");
    if (name == "transfer-encoding") {
      if (is_chunked) return "it has two Transfer-Encoding headers";
      if (to_lower(value) != "chunked") return fmt::format("its Transfer-Encoding is '{}', but only chunked is supported", shown(value));
      is_chunked = true;
    } else if (name == "content-length") {
      if (has_length) return "it has two Content-Length headers";
      if (value.empty() || !std::ranges::all_of(value, [](char c) { return c >= '0' && c <= '9'; }))
        return fmt::format("its Content-Length is '{}', which is not a number", shown(value));
      has_length = true;
    }
    return {};
  }
};

}  // namespace

HttpResponse not_http_response(const std::string& why) {
  return error_response(400,
                        {ErrorCode::invalid_argument, "", "the request is not valid HTTP/1.1: " + why, "send a valid HTTP/1.1 request"});
}

std::string framing_problem(std::string_view header) {
  Framing framing;
  bool is_first = true, is_old = false;
  while (!header.empty()) {
    const std::size_t end = header.find("\r\n");
    const std::string_view line = header.substr(0, end);
    header.remove_prefix(end == std::string_view::npos ? header.size() : end + 2);
    if (line.find_first_of(std::string_view("\r\n\0", 3)) != std::string_view::npos) return "a line contains a bare CR, LF or NUL";
    if (line.empty()) return is_first ? "it begins with an empty line" : framing.problem(is_old);
    if (is_first)
      is_old = line.ends_with(" HTTP/1.0");
    else if (std::string problem = framing.add(line); !problem.empty())
      return problem;
    is_first = false;
  }
  return "its header has no end";
}

bool take_absolute_form(HttpRequest& request) {
  if (request.target.starts_with('/') || request.target == "*") return true;
  const std::string start = to_lower(std::string_view(request.target).substr(0, 8));
  const std::size_t scheme = start.starts_with("http://") ? 7 : start == "https://" ? 8 : 0;
  if (scheme == 0) return false;
  const std::size_t end = std::min(request.target.find_first_of("/?#", scheme), request.target.size());
  request.host = request.target.substr(scheme, end - scheme);
  request.target.erase(0, end);
  if (!request.target.starts_with('/')) request.target.insert(0, "/");
  return parse_host_name(request.host).has_value();
}

HttpResponse body_too_slow_response() {
  return error_response(408, {ErrorCode::invalid_argument, "", "the body arrived too slowly, and other requests needed its memory",
                              "send the request again, faster"});
}

HttpResponse too_many_answers_response(const ServerOptions& options) {
  return error_response(429,
                        {ErrorCode::overloaded, "", "too many requests are waiting for answers",
                         "try again, or start the server with a larger --max-connections"},
                        options.retry_after_s);
}

HttpResponse too_many_bodies_response(const ServerOptions& options) {
  return error_response(503,
                        {ErrorCode::overloaded, "", "the memory for request bodies is full",
                         "try again, or start the server with a larger --max-body-bytes-in-flight"},
                        options.retry_after_s);
}

HttpResponse body_too_large_response(const ServerOptions& options) {
  return error_response(413, {ErrorCode::too_large, "", fmt::format("the body has more than {} bytes", options.max_body_bytes),
                              "send a smaller body, or raise --max-body-bytes"});
}

std::optional<HttpResponse> read_error_response(const boost::system::error_code& code, const RequestHeader& header,
                                                const ServerOptions& options) {
  if (code == http::error::body_limit) return body_too_large_response(options);
  const auto num_fields = std::distance(header.begin(), header.end());
  if (code == http::error::header_limit || (!code && num_fields > options.max_header_fields)) {
    return error_response(431, {ErrorCode::too_large, "",
                                fmt::format("the request has more than {} bytes or {} fields of headers", options.max_header_bytes,
                                            options.max_header_fields),
                                "send fewer or shorter headers"});
  }
  if (!code && header.version() >= 11 && header.count(http::field::host) != 1)
    return not_http_response("it must have exactly one Host header");
  const bool is_http_error = code && code.category() == http::make_error_code(http::error::bad_target).category();
  if (!is_http_error || code == http::error::end_of_stream || code == http::error::partial_message) return std::nullopt;
  return not_http_response(code.message());
}

void fill_request_head(const RequestParser& parser, const tcp::socket& socket, const ServerOptions& options, HttpRequest& request) {
  const auto& header = parser.get();
  const ClientNetworkInfo info = network_info_of(socket, header);
  request.method = text_of(header.method_string());
  request.target = text_of(header.target());
  request.authorization = text_of(header[http::field::authorization]);
  // Anthropic's clients send the API key in this header.
  if (const auto key = text_of(header["x-api-key"]); request.authorization.empty() && !key.empty()) request.authorization = "Bearer " + key;
  request.session = session_of(header);
  request.trace = parse_traceparent(text_of(header["traceparent"]));
  request.is_beta = header.count("anthropic-beta") > 0;
  const auto id = header[kRequestId];
  if (is_request_id({id.data(), id.size()})) request.id = text_of(id);
  request.content_type = text_of(header[http::field::content_type]);
  request.host = info.host;
  if (header.count(http::field::origin) > 0) request.origin = text_of(header[http::field::origin]);
  request.preflight_method = text_of(header[http::field::access_control_request_method]);
  request.preflight_headers = text_of(header[http::field::access_control_request_headers]);
  request.has_body = !parser.is_done();
  request.over_loopback = plain_address(info.local.address()).is_loopback();
  request.is_local = is_local_client(info, options.trusted_proxies);
  request.address = client_address(info, options.trusted_proxies);
}

}  // namespace quire
