#pragma once
// Files within a request: data:image/png;base64,... (RFC 2397), or the base64 alone.
#include <cstddef>
#include <string_view>
#include <vector>

#include "quire/base/error.h"

namespace quire {

// Errors, without a field: `unsupported` (an address: nothing is fetched), `invalid_argument` (no data URL, no base64, nothing in it).
Result<std::vector<std::byte>> read_data_url(std::string_view url);
Result<std::vector<std::byte>> read_base64(std::string_view text);

}  // namespace quire
