// Tests quantisation of float rows: by definition, and not worse than a simpler method.
#include "format/quantise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/half.h"
#include "base/random.h"

namespace quire {
namespace {

struct Buffers {
  explicit Buffers(std::size_t columns, std::size_t per_scale)
      : codes(columns, 0xAA), scales(columns / per_scale, NAN), minimums(columns / per_scale, NAN) {}
  std::vector<std::uint8_t> codes;
  std::vector<float> scales, minimums;
};

std::vector<float> draw(Random& random, std::size_t count) {
  std::vector<float> values(count);
  const auto scale = static_cast<float>(std::pow(10.0, random.unit() * 6.0 - 4.0));
  const auto middle = random.chance(0.2) ? scale * 3.0F : 0.0F;
  for (float& value : values) {
    double sum = 0.0;
    for (int i = 0; i < 6; ++i) sum += random.unit() - 0.5;
    value = middle + scale * static_cast<float>(random.chance(0.01) ? 8.0 * sum : sum);
  }
  if (random.chance(0.1)) std::fill_n(values.begin(), 32, 0.0F);
  if (random.chance(0.1)) std::fill_n(values.begin(), 32, scale);
  return values;
}

double error_of(std::span<const float> values, const Buffers& made, std::size_t per_scale, int zero) {
  double sum = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double held =
        static_cast<double>(made.scales[i / per_scale]) * (made.codes[i] - zero) + static_cast<double>(made.minimums[i / per_scale]);
    sum += (static_cast<double>(values[i]) - held) * (static_cast<double>(values[i]) - held);
  }
  return sum;
}

TEST(Quantise, EightBitCodesFollowTheDefinition) {
  Random random(5);
  for (int round = 0; round < 300; ++round) {
    const std::vector<float> values = draw(random, 96);
    Buffers made(96, 16);
    quantise_q8_row(values, {made.codes, made.scales, made.minimums});
    for (std::size_t group = 0; group < 3; ++group) {
      float largest = 0.0F;
      for (std::size_t i = 0; i < 32; ++i) largest = std::max(largest, std::abs(values[32 * group + i]));
      const float scale = made.scales[2 * group];
      EXPECT_EQ(scale, made.scales[2 * group + 1]);
      EXPECT_TRUE(is_exact_in_f16(scale));
      EXPECT_NEAR(scale, largest / 127.0F, largest / 127.0F * 0x1p-11F + 0x1p-25F) << "rounded to the nearest";
      for (std::size_t i = 0; i < 32; ++i) {
        const float exact = largest == 0.0F ? 0.0F : values[32 * group + i] / (largest / 127.0F);
        EXPECT_NEAR(made.codes[32 * group + i] - 128, exact, 0.5001F);
      }
      EXPECT_EQ(made.minimums[2 * group], 0.0F);
    }
  }
}

// The error of a line from the smallest to the largest value, without rounding its ends.
double plain_error(std::span<const float> values) {
  double sum = 0.0;
  for (std::size_t first = 0; first < values.size(); first += 32) {
    const auto group = values.subspan(first, 32);
    const auto [least, most] = std::ranges::minmax(group);
    const double scale = (static_cast<double>(most) - static_cast<double>(least)) / 15.0;
    for (const float value : group) {
      const double off = static_cast<double>(value) - static_cast<double>(least);
      const double code = scale == 0.0 ? 0.0 : std::nearbyint(off / scale);
      sum += (off - code * scale) * (off - code * scale);
    }
  }
  return sum;
}

TEST(Quantise, FourBitCodesAreCloserThanTheLineThroughTheEnds) {
  Random random(6);
  double error = 0.0, plain = 0.0;
  for (int round = 0; round < 300; ++round) {
    std::vector<float> values = draw(random, 512);
    float largest = 0.0F;
    for (const float value : values) largest = std::max(largest, std::abs(value));
    for (float& value : values) value /= largest;  // gives each row equal weight
    for (const bool has_units : {false, true}) {
      Buffers made(512, 32);
      std::vector<float> units(has_units ? 4 : 0);
      quantise_q4_row(values, {made.codes, made.scales, made.minimums}, units);
      for (const std::uint8_t code : made.codes) ASSERT_LE(code, 15);
      for (std::size_t group = 0; group < 16; ++group) {
        for (const auto& [part, unit] : {std::pair(&made.scales, 0U), {&made.minimums, 1U}}) {
          const float value = (*part)[group];
          if (!has_units) {
            ASSERT_TRUE(is_exact_in_f16(value));
            continue;
          }
          const float size = units[group / 8 * 2 + unit];
          ASSERT_TRUE(is_exact_in_f16(size));
          const float times = size == 0.0F ? 0.0F : std::nearbyint(value / size);
          ASSERT_TRUE(times >= -128.0F && times <= 127.0F && times * size == value);
        }
      }
      error += error_of(values, made, 32, 0);
    }
    plain += 2.0 * plain_error(values);
  }
  EXPECT_LT(error, 0.93 * plain);
}

TEST(Quantise, EqualValuesAreExactUpToF16Precision) {
  for (const float value : {0.0F, 0.375F, -3.0F}) {
    const std::vector<float> values(256, value);
    Buffers four(256, 32), eight(256, 16);
    quantise_q4_row(values, {four.codes, four.scales, four.minimums}, {});
    quantise_q8_row(values, {eight.codes, eight.scales, eight.minimums});
    EXPECT_EQ(error_of(values, four, 32, 0), 0.0);
    EXPECT_LT(error_of(values, eight, 16, 128), 256.0 * std::pow(std::abs(value) * 0x1p-11, 2) + 1e-30);
  }
}

TEST(Quantise, DetectsNaNAndInf) {
  std::vector<float> values(64, 1.0F);
  EXPECT_TRUE(all_finite(values));
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -INFINITY}) {
    values[63] = bad;
    EXPECT_FALSE(all_finite(values));
  }
}

}  // namespace
}  // namespace quire
