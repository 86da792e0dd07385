#pragma once
// Converts between f32 and the 16-bit types bf16 and f16 with integer operations.
#include <bit>
#include <cstdint>

namespace quire {

inline float bf16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

// Converts with rounding to nearest even; NaN stays NaN.
inline std::uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

inline float f16_to_float(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16;
  const std::uint32_t rest = bits & 0x7FFFU;
  if (rest >= 0x7C00U) return std::bit_cast<float>(sign | 0x7F800000U | ((rest & 0x3FFU) << 13));
  if (rest >= 0x400U) return std::bit_cast<float>(sign | ((rest << 13) + (112U << 23)));
  const float magnitude = static_cast<float>(rest) * 0x1p-24F;  // subnormal
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}

// Converts by dropping the bits that do not fit into f16. For values that are exact in f16 (is_exact_in_f16).
inline std::uint16_t float_to_f16_truncated(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t rest = bits & 0x7FFFFFFFU;
  if (rest >= (143U << 23)) return static_cast<std::uint16_t>(sign | 0x7C00U);
  if (rest >= (113U << 23)) return static_cast<std::uint16_t>(sign | ((rest - (112U << 23)) >> 13));
  return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(std::bit_cast<float>(rest) * 0x1p24F));
}

inline bool is_exact_in_f16(float value) {
  return std::bit_cast<std::uint32_t>(f16_to_float(float_to_f16_truncated(value))) == std::bit_cast<std::uint32_t>(value);
}

}  // namespace quire
