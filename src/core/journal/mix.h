#pragma once
// A digest of 64 bits for comparing data with itself: a frame that is read again, a decision that is repeated. Not suitable as a block
// hash, and not secure against deliberate collisions.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace quire {

// Each step maps the added number and the previous state one-to-one, so two inputs that differ in a single number have different digests.
class WordHasher {
 public:
  WordHasher& add(std::uint64_t value) {
    value_ = (value_ ^ value) * 0x9E3779B97F4A7C15U;
    value_ ^= value_ >> 32U;
    return *this;
  }
  // Adds four numbers at the cost of one. The step is still one-to-one in each of them.
  WordHasher& add(std::uint64_t a, std::uint64_t b, std::uint64_t c, std::uint64_t d) {
    return add(a * 0xD6E8FEB86659FD93U ^ std::rotl(b * 0xA0761D6478BD642FU, 17) ^ std::rotl(c * 0xE7037ED1A0B428DBU, 34) ^
               std::rotl(d * 0x8EBC6AF09C88C6E3U, 51));
  }
  WordHasher& bytes(std::span<const std::uint8_t> bytes) {
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
