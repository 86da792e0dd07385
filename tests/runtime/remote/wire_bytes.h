#pragma once
// Bytes of messages between two servers, written by hand.
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

namespace quire::test {

using WireBytes = std::vector<std::byte>;

inline WireBytes wire_bytes(std::initializer_list<unsigned> values) {
  WireBytes bytes;
  for (const unsigned value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

inline WireBytes wire_fill(std::size_t count, unsigned value) {
  return WireBytes(count, static_cast<std::byte>(value));
}

inline WireBytes wire_text(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

inline WireBytes joined(std::initializer_list<WireBytes> parts) {
  WireBytes all;
  for (const WireBytes& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace quire::test
