#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// RFC 4648, with padding.
[[nodiscard]] std::string base64_of(std::span<const std::byte> bytes);
// nullopt: it is none, to the last bit.
[[nodiscard]] std::optional<std::vector<std::byte>> from_base64(std::string_view text);

}  // namespace quire
