#pragma once
// Audio that tools/record/log_mel.py makes as well, bit for bit.
#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/random.h"

namespace quire {

inline std::vector<float> toy_audio(std::string_view name, std::size_t count) {
  std::uint64_t seed = 0xCBF29CE484222325;
  for (const char byte : name) seed = (seed ^ static_cast<unsigned char>(byte)) * 0x100000001B3;
  Random random(seed);
  std::vector<float> samples;
  samples.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto step = static_cast<std::int64_t>(random.next() >> 48U) - (1 << 15);
    samples.push_back(std::ldexp(static_cast<float>(step * static_cast<std::int64_t>(i / 64 % 257)), -25));
  }
  return samples;
}

}  // namespace quire
