#pragma once
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace quire {

// 1 to 65535, in digits alone; nullopt: it is none. Boost.URL's own takes a larger number for another one.
inline std::optional<std::uint16_t> parse_port(std::string_view text) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port == 0) return std::nullopt;
  return port;
}

}  // namespace quire
