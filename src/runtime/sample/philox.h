#pragma once
// Philox4x32-10 (Salmon et al., SC'11), a counter-based random number generator. A value depends only on (seed, index), so the draws of a
// request do not change with the batch, a preemption or a restart.
#include <array>
#include <cstdint>

namespace quire {

inline std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32U) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32U) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(product0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// Returns the index-th 64 random bits of the stream of `seed`.
inline std::uint64_t random_bits(std::uint64_t seed, std::uint64_t index) {
  const auto words = philox4x32({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32U), 0, 0},
                                {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32U)});
  return (std::uint64_t{words[1]} << 32U) | words[0];
}

// Returns a uniform number in [0, 1) with 53 random bits.
inline double random_uniform(std::uint64_t seed, std::uint64_t index) {
  return static_cast<double>(random_bits(seed, index) >> 11U) * 0x1.0p-53;
}

}  // namespace quire
