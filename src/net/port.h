#pragma once
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace quire {

// Returns the port (1 to 65535) if the text consists only of its digits; nullopt for any other text. Boost.URL's own parser maps a number
// above 65535 to another port.
inline std::optional<std::uint16_t> parse_port(std::string_view text) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port == 0) return std::nullopt;
  return port;
}

}  // namespace quire
