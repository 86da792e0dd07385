#pragma once
// The name of a full block: its tokens, everything before them (through the parent's name), and the extra keys. Equal names mean equal
// keys and values, so names must not collide. hash_function.h makes them.
#include <array>
#include <cstdint>
#include <cstring>

namespace quire {

// Names shorter than 32 bytes (hash_size) end in zeros.
struct BlockHash {
  std::array<std::uint8_t, 32> bytes{};

  friend bool operator==(const BlockHash&, const BlockHash&) = default;

  [[nodiscard]] std::uint64_t prefix() const {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
};

}  // namespace quire
