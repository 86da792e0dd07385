#include "server/http/error_response.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/context_overflow.h"
#include "base/json_writer.h"
#include "text/utf8.h"

namespace quire {

namespace {

const char* error_type(unsigned status) {
  if (status == 401) return "authentication_error";
  if (status == 403) return "permission_error";
  if (status == 429) return "rate_limit_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}

// Returns the code; empty: null.
std::string_view error_code(const Error& error, unsigned status) {
  switch (status) {
    case 401:
      return "invalid_api_key";
    case 403:
      return "forbidden";
    case 404:
      if (error.field == "model") return "model_not_found";
      return error.field == "previous_response_id" ? "previous_response_not_found" : "not_found";
    case 405:
      return "method_not_allowed";
    case 413:
      return "too_large";
    case 415:
      return "unsupported_media_type";
    case 421:
      return "unknown_host";
    case 429:
      return "overloaded";
    case 431:
      return "headers_too_large";
    case 503:
      return error.code == ErrorCode::shutting_down ? "shutting_down" : "overloaded";
    default:
      if (overflow_of(error)) return "context_length_exceeded";
      return error.code == ErrorCode::unsupported ? "unsupported" : "";
  }
}

}  // namespace

std::string shown(std::string_view bytes) {
  return repair_utf8(bytes.substr(0, 100));
}

unsigned http_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
    case ErrorCode::unsupported:
      return 400;
    case ErrorCode::not_found:
      return 404;
    case ErrorCode::too_large:
      return 413;
    case ErrorCode::overloaded:
      return 429;
    case ErrorCode::shutting_down:
    case ErrorCode::unavailable:
      return 503;
    case ErrorCode::corrupt:
    case ErrorCode::io:
      return 500;
  }
  return 500;
}

std::string error_body(const Error& error, unsigned status) {
  // The message is converted to UTF-8, because it may quote a client's bytes. An overflow's message does not begin with its field, because
  // clients compare the beginning of that message; the field is only in "param".
  const std::string message = overflow_of(error) ? error.message : error.to_string();
  return json_object([&](JsonWriter& json) {
    json.begin_object("error").field("message", repair_utf8(message)).field("type", error_type(status));
    json.field("param", unless_empty(repair_utf8(error.field))).field("code", unless_empty(error_code(error, status))).end_object();
  });
}

HttpResponse error_response(unsigned status, const Error& error, std::uint32_t retry_after_s) {
  HttpResponse response{status, "application/json", error_body(error, status), {}};
  const std::string_view code = error_code(error, status);
  response.error_code = code.empty() ? error_type(status) : code;
  response.error_param = error.field;
  if (status == 429 || status == 503)
    response.headers.emplace_back("Retry-After", std::to_string(std::max(retry_after_s, error.retry_after_s)));
  if (status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

HttpResponse error_response(const Error& error, std::uint32_t retry_after_s) {
  return error_response(http_status(error.code), error, retry_after_s);
}

}  // namespace quire
