#include "server/models/upstream_headers.h"

#include <fmt/format.h>

#include "server/http/host_name.h"
#include "server/http/request_head.h"

namespace quire {

namespace {

// An address that no one can have: the model's server then does not treat the client as local.
constexpr const char* kUnknown = "unknown";

std::string forwarded_address(const HttpRequest& request, bool has_key) {
  if (request.origin && !has_key) return kUnknown;
  if (request.is_local) return "127.0.0.1";
  const std::string address = request.address.substr(0, request.address.find('/'));
  const auto host = parse_host_name(address.find(':') == std::string::npos ? address : "[" + address + "]");
  return host && host->address && !host->is_loopback() ? address : kUnknown;
}

}  // namespace

HttpHeaders upstream_headers(const HttpRequest& request, bool has_key) {
  HttpHeaders headers{{kRequestId, request.id}, {"X-Forwarded-For", forwarded_address(request, has_key)}};
  if (!request.content_type.empty()) headers.emplace_back("Content-Type", request.content_type);
  if (!request.authorization.empty()) headers.emplace_back("Authorization", request.authorization);
  if (!request.session.empty()) headers.emplace_back("X-Session-Id", request.session);
  if (request.is_beta) headers.emplace_back("anthropic-beta", "1");
  if (request.trace)
    headers.emplace_back("traceparent", fmt::format("00-{}-{}-{}", request.trace->trace_id, request.trace->parent_id,
                                                    request.trace->is_sampled ? "01" : "00"));
  return headers;
}

}  // namespace quire
