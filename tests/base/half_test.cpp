#include "base/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>

namespace quire {
namespace {

TEST(Halves, EveryBitPatternHasTheRightValue) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const std::uint32_t exponent = bits >> 10 & 31;
    const int mantissa = static_cast<int>(bits & 1023);
    const float value = f16_to_float(static_cast<std::uint16_t>(bits));
    EXPECT_EQ(std::signbit(value), (bits & 0x8000) != 0);
    if (exponent == 31) {
      EXPECT_EQ(std::isnan(value), mantissa != 0);
      EXPECT_EQ(std::isinf(value), mantissa == 0);
      continue;
    }
    const double expected = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, static_cast<int>(exponent) - 25);
    EXPECT_EQ(std::fabs(value), expected) << bits;
  }
}

TEST(Bf16, RoundsToTheNearestEven) {
  std::mt19937 random(3);
  for (int i = 0; i < 200000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    const std::uint16_t bits = float_to_bf16(value);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(bf16_to_float(bits)));
      continue;
    }
    const std::uint32_t down = std::bit_cast<std::uint32_t>(value) >> 16;
    const double below = bf16_to_float(static_cast<std::uint16_t>(down));
    // Past the largest finite value the next step is the next power of two.
    const double above = (down & 0x7FFF) == 0x7F7F ? std::copysign(0x1p128, value) : bf16_to_float(static_cast<std::uint16_t>(down + 1));
    if (std::isinf(value))
      EXPECT_EQ(bits, down);
    else if (std::fabs(value - below) != std::fabs(above - value))
      EXPECT_EQ(bits, std::fabs(value - below) < std::fabs(above - value) ? down : down + 1) << value;
    else
      EXPECT_EQ(bits & 1, 0) << value;
  }
}

}  // namespace
}  // namespace quire
