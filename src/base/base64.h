#pragma once
#include <cstddef>
#include <span>
#include <string>

namespace quire {

// RFC 4648, with padding.
[[nodiscard]] std::string base64_of(std::span<const std::byte> bytes);

}  // namespace quire
