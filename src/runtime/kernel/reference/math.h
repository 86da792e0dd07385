#pragma once
// exp and sums as the numeric contracts of elementwise.h and attention.h define them.
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/exp_constants.h"

namespace quire::reference {

// Returns zero with the same sign for denormal numbers, and other numbers unchanged.
inline float flushed(float value) {
  return std::fabs(value) < std::numeric_limits<float>::min() ? std::copysign(0.0F, value) : value;
}

// Returns exp(x) for x clamped to [-87.3, 88.3], and NaN for NaN; the relative error is below 2e-7. Vector versions perform the same
// operations in the same order.
inline float exp_polynomial(float x) {
  if (std::isnan(x)) return x;
  x = x > -87.3F ? x : -87.3F;
  x = x < 88.3F ? x : 88.3F;
  const float n = std::nearbyint(x * exp_constants::kLog2E);
  float r = std::fma(n, -exp_constants::kLn2High, x);
  r = std::fma(n, -exp_constants::kLn2Low, r);
  float p = exp_constants::kFirst;
  for (const float c : exp_constants::kRest) p = std::fma(p, r, c);
  const float e = std::fma(p, r * r, r) + 1.0F;
  return e * std::bit_cast<float>((static_cast<std::int32_t>(n) + 127) << 23);
}

// Returns tanh(x) as (e^2x - 1) / (e^2x + 1), with e^2x - 1 computed without cancellation, and NaN for NaN.
inline float tanh_polynomial(float x) {
  if (std::isnan(x)) return x;
  const float clamped = x > -20.0F ? x : -20.0F;
  const float y = 2.0F * (clamped < 20.0F ? clamped : 20.0F);
  const float n = std::nearbyint(y * exp_constants::kLog2E);
  float r = std::fma(n, -exp_constants::kLn2High, y);
  r = std::fma(n, -exp_constants::kLn2Low, r);
  float p = exp_constants::kFirst;
  for (const float c : exp_constants::kRest) p = std::fma(p, r, c);
  const float power = std::bit_cast<float>((static_cast<std::int32_t>(n) + 127) << 23);
  const float e = std::fma(std::fma(p, r * r, r), power, power - 1.0F);
  return e / (e + 2.0F);
}

inline float soft_capped(float x, float cap) {
  return cap * tanh_polynomial((std::isfinite(x) ? x : NAN) / cap);
}

// 16 partial sums: value i is added to lane i % 16. sum_lanes() adds lanes that are 8 apart, then 4, 2 and 1 apart.
using Lanes = std::array<float, 16>;

inline float sum_lanes(Lanes lanes) {
  for (std::size_t width = 8; width > 0; width /= 2)
    for (std::size_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  return lanes[0];
}

}  // namespace quire::reference
