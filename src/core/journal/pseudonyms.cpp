#include "core/journal/pseudonyms.h"

#include <array>
#include <bit>
#include <cstring>

#include "base/check.h"

namespace quire {
namespace {

static_assert(std::endian::native == std::endian::little, "SipHash reads words as little endian");

struct SipState {
  std::uint64_t v0, v1, v2, v3;

  void rounds(int count) {
    for (int i = 0; i < count; ++i) {
      v0 += v1;
      v1 = std::rotl(v1, 13) ^ v0;
      v0 = std::rotl(v0, 32);
      v2 += v3;
      v3 = std::rotl(v3, 16) ^ v2;
      v0 += v3;
      v3 = std::rotl(v3, 21) ^ v0;
      v2 += v1;
      v1 = std::rotl(v1, 17) ^ v2;
      v2 = std::rotl(v2, 32);
    }
  }
  void take(std::uint64_t word) {
    v3 ^= word;
    rounds(2);
    v0 ^= word;
  }
  [[nodiscard]] std::uint64_t out() const { return v0 ^ v1 ^ v2 ^ v3; }
};

}  // namespace

BlockHash pseudonym(const PseudonymKey& key, const BlockHash& name) {
  QUIRE_CHECK(key.hash_bytes == 16 || key.hash_bytes == 32, "block hashes have 16 or 32 bytes");
  std::array<std::uint64_t, 4> words{};
  std::memcpy(words.data(), name.bytes.data(), sizeof words);
  const auto [k0, k1] = key.words;
  SipState sip{k0 ^ 0x736F6D6570736575U, k1 ^ 0x646F72616E646F6DU ^ 0xEEU, k0 ^ 0x6C7967656E657261U, k1 ^ 0x7465646279746573U};
  for (const std::uint64_t word : words) sip.take(word);
  sip.take(std::uint64_t{sizeof words} << 56U);
  sip.v2 ^= 0xEEU;
  sip.rounds(4);
  words[0] = sip.out();
  sip.v1 ^= 0xDDU;
  sip.rounds(4);
  words[1] = sip.out();
  BlockHash other;
  for (std::size_t at = 0; at < key.hash_bytes; at += 16) std::memcpy(&other.bytes[at], words.data(), 16);
  return other;
}

std::vector<std::uint8_t> pseudonyms(const PseudonymKey& key, std::span<const std::uint8_t> names) {
  std::vector<std::uint8_t> others(names.size());
  for (std::size_t at = 0; at + key.hash_bytes <= names.size(); at += key.hash_bytes) {
    BlockHash name;
    std::memcpy(name.bytes.data(), &names[at], key.hash_bytes);
    std::memcpy(&others[at], pseudonym(key, name).bytes.data(), key.hash_bytes);
  }
  return others;
}

}  // namespace quire
