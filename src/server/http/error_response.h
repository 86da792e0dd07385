#pragma once
// Builds responses with errors in OpenAI's format: {"error": {"message", "type", "param", "code"}}.
#include <cstdint>
#include <string>
#include <string_view>

#include "quire/base/error.h"
#include "server/http/http.h"

namespace quire {

[[nodiscard]] unsigned http_status(ErrorCode code);

// Returns the JSON of the error, without an HTTP status, for a stream that has begun.
[[nodiscard]] std::string error_body(const Error& error, unsigned status);

// Returns the response for an error. With status 429 and 503, Retry-After contains `retry_after_s`.
[[nodiscard]] HttpResponse error_response(const Error& error, std::uint32_t retry_after_s = 1);
[[nodiscard]] HttpResponse error_response(unsigned status, const Error& error, std::uint32_t retry_after_s = 1);

// Returns the first 100 bytes of a client's text as valid UTF-8, for error messages.
[[nodiscard]] std::string shown(std::string_view bytes);

}  // namespace quire
