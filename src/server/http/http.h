#pragma once
// A request and a response as values: what the handlers see of HTTP.
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

// Filled by Session in two parts: the head before the body is read (answer_early() sees only that), then the body.
struct HttpRequest {
  std::string id;      // the client's own X-Request-Id, or one of ours
  std::string method;  // "GET"
  std::string target;  // path and query, as sent
  std::string authorization;
  std::string session{};                // what an agent calls its session in a header of its own; empty: none does
  std::optional<TraceContext> trace{};  // the client's own
  bool is_beta = false;                 // sent with an anthropic-beta header
  std::string content_type;
  std::string host;                   // name and port as the client wrote them; empty: not said
  std::optional<std::string> origin;  // the web page that a browser sends it for
  std::string preflight_method;       // a browser asks whether the page may send this...
  std::string preflight_headers;      // ... with these headers
  std::string body;
  std::shared_ptr<BodyBudget::Lease> body_lease{};  // goes with the last copy of the body
  bool has_body = false;                            // also where it has not been read yet
  bool over_loopback = false;                       // the connection came to a loopback address
  bool is_local = false;                            // comes from this machine, and no proxy speaks for another

  [[nodiscard]] std::string_view path() const { return std::string_view(target).substr(0, target.find('?')); }
};

struct HttpResponse {
  unsigned status = 200;
  std::string content_type = "application/json";
  std::string body;
  HttpHeaders headers;  // besides Content-Type and Content-Length
};

}  // namespace quire
