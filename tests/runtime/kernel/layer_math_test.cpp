#include "runtime/kernel/layer_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/random.h"

namespace quire {
namespace {

TEST(LayerMathTest, GeluMatchesErf) {
  std::vector<float> values;
  for (int i = -8000; i <= 8000; ++i) values.push_back(static_cast<float>(i) / 1000.0F);
  std::vector<float> out = values;
  gelu(out.data(), static_cast<std::uint32_t>(out.size()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double x = values[i];
    ASSERT_NEAR(out[i], 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0))), 2.5e-6) << x;
  }
}

// NaN and Inf give NaN and do not affect other values.
TEST(LayerMathTest, GeluOfNaNOrInfDoesNotAffectOtherValues) {
  std::vector<float> values = {1.0F, std::numeric_limits<float>::quiet_NaN(), 1.0F, std::numeric_limits<float>::infinity(), 1.0F};
  gelu(values.data(), 5);
  EXPECT_TRUE(std::isnan(values[1]) && std::isnan(values[3]));
  EXPECT_EQ(values[0], values[2]);
  EXPECT_EQ(values[0], values[4]);
}

TEST(LayerMathTest, LayerNormUsesMeanAndVariance) {
  Random random(3);
  for (const std::uint32_t n : {1U, 15U, 16U, 33U, 384U}) {
    std::vector<float> x, weight, bias, out(n);
    for (std::uint32_t i = 0; i < n; ++i) {
      x.push_back(static_cast<float>(random.unit() * 4.0 + 100.0));
      weight.push_back(static_cast<float>(random.unit()));
      bias.push_back(static_cast<float>(random.unit()));
    }
    double mean = 0.0, variance = 0.0;
    for (const float value : x) mean += static_cast<double>(value) / n;
    for (const float value : x) variance += (static_cast<double>(value) - mean) * (static_cast<double>(value) - mean) / n;
    layer_norm(x.data(), weight.data(), bias.data(), 1e-5F, out.data(), n);
    for (std::uint32_t i = 0; i < n; ++i) {
      const double expected =
          (static_cast<double>(x[i]) - mean) / std::sqrt(variance + 1e-5) * static_cast<double>(weight[i]) + static_cast<double>(bias[i]);
      ASSERT_NEAR(out[i], expected, n == 1 ? 5e-3 : 2e-4) << n;
    }
    layer_norm(x.data(), weight.data(), bias.data(), 1e-5F, x.data(), n);
    EXPECT_EQ(x, out) << "in place";
  }
}

}  // namespace
}  // namespace quire
