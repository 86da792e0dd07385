#pragma once
// HTTP requests and responses as plain values. Handlers see no other part of HTTP.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/http/body_budget.h"
#include "server/http/trace_context.h"

namespace quire {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

// Connection fills in a request in two parts: the head before it reads the body, then the body. answer_early() gets only the head.
struct HttpRequest {
  std::string id;           // the client's X-Request-Id, or `unique_id`
  std::string unique_id{};  // unique, also across servers
  std::string method;       // "GET"
  std::string target;       // path and query, as sent
  std::string authorization;
  std::string address{};                // result of client_address()
  std::string client{};                 // unit of fair sharing: the tenant, or the address if the request has no tenant
  std::string session{};                // session id from a header of the client's agent; empty: none
  std::optional<TraceContext> trace{};  // from the client's traceparent header
  bool is_beta = false;                 // the request has an anthropic-beta header
  std::string content_type;
  std::string host;                   // name and port as the client wrote them; empty: not given
  std::optional<std::string> origin;  // the web page for which a browser sends the request
  std::string preflight_method;       // preflight: the method that the page wants to use
  std::string preflight_headers;      // preflight: the headers that the page wants to send
  std::string body;
  std::shared_ptr<BodyBudget::Lease> body_lease{};  // released with the last copy of the body
  bool has_body = false;                            // known before the body is read
  bool over_loopback = false;                       // the connection arrived at a loopback address
  bool is_local = false;                            // the client is on this machine (is_local_client())

  // Returns the part of this request's answer ids after the prefix.
  [[nodiscard]] std::string answer_id() const { return unique_id.empty() || unique_id == id ? id : id + "-" + unique_id; }
  [[nodiscard]] std::string_view path() const { return std::string_view(target).substr(0, target.find('?')); }
};

struct HttpResponse {
  unsigned status = 200;
  std::string content_type = "application/json";
  std::string body;
  HttpHeaders headers;  // in addition to Content-Type and Content-Length
  // The reason of an error, for the log line: `code` of the body (or `type`, if the code is null), and `param`. Empty: not an error.
  std::string error_code{}, error_param{};
};

}  // namespace quire
