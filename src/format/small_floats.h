#pragma once
// Converts 8-bit and 4-bit floats (OCP 8-bit floating point and microscaling formats), which model files use for weights and scales.
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

namespace quire {

// The values of the e2m1 codes times 2, which makes them integers, plus 128.
inline constexpr std::array<std::uint8_t, 16> kTwiceE2m1{128, 129, 130, 131, 132, 134, 136, 140, 128, 127, 126, 125, 124, 122, 120, 116};

// Returns 2^(bits - 127); 255 is NaN.
inline float e8m0_to_float(std::uint8_t bits) {
  return bits == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0F, static_cast<int>(bits) - 127);
}

// Converts a float with a sign bit, four exponent bits (bias 7) and three mantissa bits. The format has NaN and no infinities.
inline float e4m3_to_float(std::uint8_t bits) {
  const std::uint32_t magnitude = bits & 0x7FU;
  if (magnitude == 0x7F) return std::numeric_limits<float>::quiet_NaN();
  const auto exponent = static_cast<int>(magnitude >> 3);
  const auto mantissa = static_cast<float>(magnitude & 7U);
  const float value = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8.0F + mantissa, exponent - 10);
  return (bits & 0x80U) != 0 ? -value : value;
}

}  // namespace quire
