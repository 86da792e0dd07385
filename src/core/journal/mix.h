#pragma once
// A digest of 64 bits for what is compared with itself: a frame read again, a decision made again. Not for names, and not against anybody
// who looks for collisions.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace quire {

// Each step is one to one in the number and in what came before, so two runs that differ in one number alone never meet again.
class Mix {
 public:
  Mix& add(std::uint64_t value) {
    value_ = (value_ ^ value) * 0x9E3779B97F4A7C15U;
    value_ ^= value_ >> 32U;
    return *this;
  }
  // Four at the cost of one, all the same one to one in each of them.
  Mix& add(std::uint64_t a, std::uint64_t b, std::uint64_t c, std::uint64_t d) {
    return add(a * 0xD6E8FEB86659FD93U ^ std::rotl(b * 0xA0761D6478BD642FU, 17) ^ std::rotl(c * 0xE7037ED1A0B428DBU, 34) ^
               std::rotl(d * 0x8EBC6AF09C88C6E3U, 51));
  }
  Mix& bytes(std::span<const std::uint8_t> bytes) {
    add(bytes.size());
    std::size_t at = 0;
    for (std::uint64_t word = 0; at + sizeof word <= bytes.size(); at += sizeof word) {
      std::memcpy(&word, bytes.data() + at, sizeof word);
      add(std::endian::native == std::endian::little ? word : std::byteswap(word));
    }
    std::uint64_t rest = 0;
    for (unsigned shift = 0; at < bytes.size(); ++at, shift += 8) rest |= std::uint64_t{bytes[at]} << shift;
    return add(rest);
  }
  [[nodiscard]] std::uint64_t digest() const { return value_; }

 private:
  std::uint64_t value_ = 0x243F6A8885A308D3U;
};

}  // namespace quire
