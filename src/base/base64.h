#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// Returns the base64 text of the bytes (RFC 4648), with padding.
[[nodiscard]] std::string base64_of(std::span<const std::byte> bytes);
// Returns the bytes of a base64 text with padding. nullopt: the text is not valid, or its unused last bits are not 0.
[[nodiscard]] std::optional<std::vector<std::byte>> from_base64(std::string_view text);

}  // namespace quire
