#pragma once
// Decodes files within a request: data:image/png;base64,... (RFC 2397), or base64 alone.
#include <cstddef>
#include <string_view>
#include <vector>

#include "quire/base/error.h"

namespace quire {

// Decode a data URL, or base64 text. Errors, without a field: `unsupported` (a network or file address, which this function does not
// fetch), `invalid_argument` (not a data URL, not base64, or empty).
Result<std::vector<std::byte>> read_data_url(std::string_view url);
Result<std::vector<std::byte>> read_base64(std::string_view text);

}  // namespace quire
