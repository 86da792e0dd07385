#pragma once
// Errors in OpenAI's shape: {"error": {"message", "type", "param", "code"}}.
#include <cstdint>
#include <string>
#include <string_view>

#include "quire/base/error.h"
#include "server/http/http.h"

namespace quire {

[[nodiscard]] unsigned http_status(ErrorCode code);

// Returns the error object without the status, for a stream that has begun.
[[nodiscard]] std::string error_body(const Error& error, unsigned status);

// `retry_after_s` goes into Retry-After for 429 and 503.
[[nodiscard]] HttpResponse error_response(const Error& error, std::uint32_t retry_after_s = 1);
[[nodiscard]] HttpResponse error_response(unsigned status, const Error& error, std::uint32_t retry_after_s = 1);

// Returns the first 100 bytes of outside text as valid UTF-8, for a message.
[[nodiscard]] std::string shown(std::string_view bytes);

}  // namespace quire
