#pragma once
// Errors in OpenAI's shape: {"error": {"message", "type", "param", "code"}}.
#include <cstdint>
#include <string>

#include "quire/error.h"
#include "server/http.h"

namespace quire {

[[nodiscard]] unsigned http_status(ErrorCode code);

// The error object without the status: what goes into a stream that has begun.
[[nodiscard]] std::string error_body(const Error& error, unsigned status);

// `retry_after_s` goes into Retry-After for 429 and 503.
[[nodiscard]] HttpResponse error_response(const Error& error, std::uint32_t retry_after_s = 1);
[[nodiscard]] HttpResponse error_response(unsigned status, const Error& error, std::uint32_t retry_after_s = 1);

}  // namespace quire
