#include "runtime/kernel/elementwise.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numbers>

#include "runtime/kernel/kernel_fixtures.h"

namespace quire {
namespace {

using namespace kernel_test;

// Runs one kernel over odd and even sizes on every table; all must give the bits of the reference.
template <class Run>
void expect_same_bits(Run run) {
  Rng rng(31);
  for (const std::uint32_t n : {1U, 2U, 7U, 15U, 16U, 17U, 33U, 64U, 100U, 576U, 1536U}) {
    const std::vector<float> a = random_floats(rng, n, 4.0F);
    const std::vector<float> b = random_floats(rng, n);
    const std::vector<float> expected = run(select_kernels(KernelIsa::reference), a, b);
    for (const Kernels* kernels : fast_kernels()) ASSERT_TRUE(same_bits(run(*kernels, a, b), expected)) << kernels->name << " n " << n;
  }
}

TEST(Elementwise, EveryTableHasTheBitsOfTheReference) {
  if (fast_kernels().empty()) GTEST_SKIP() << kNothingToCompare;
  expect_same_bits([](const Kernels& kernels, std::vector<float> a, const std::vector<float>& b) {
    kernels.rms_norm(a.data(), b.data(), 1e-5F, a.data(), static_cast<std::uint32_t>(a.size()));
    return a;
  });
  expect_same_bits([](const Kernels& kernels, std::vector<float> a, const std::vector<float>& b) {
    for (float& value : a) value *= 20.0F;
    kernels.silu_mul(a.data(), b.data(), a.data(), static_cast<std::uint32_t>(a.size()));
    return a;
  });
  expect_same_bits([](const Kernels& kernels, std::vector<float> a, const std::vector<float>& b) {
    kernels.sigmoid_mul(a.data(), b.data(), a.data(), static_cast<std::uint32_t>(a.size()));
    return a;
  });
}

TEST(Elementwise, IsCloseToDoublePrecision) {
  Rng rng(32);
  const Kernels& kernels = select_kernels(KernelIsa::best);
  const std::vector<float> x = random_floats(rng, 777, 3.0F);
  const std::vector<float> y = random_floats(rng, 777);
  std::vector<float> out(777);
  double squares = 0.0;
  for (const float value : x) squares += static_cast<double>(value) * static_cast<double>(value);
  kernels.rms_norm(x.data(), y.data(), 1e-5F, out.data(), 777);
  for (std::size_t i = 0; i < 777; ++i) {
    const double exact = static_cast<double>(x[i]) * static_cast<double>(y[i]) / std::sqrt(squares / 777 + 1e-5);
    ASSERT_NEAR(out[i], exact, 1e-6 * std::fabs(exact) + 1e-12);
  }
  kernels.silu_mul(x.data(), y.data(), out.data(), 777);
  for (std::size_t i = 0; i < 777; ++i) {
    const double exact = static_cast<double>(x[i]) / (1 + std::exp(-static_cast<double>(x[i]))) * static_cast<double>(y[i]);
    ASSERT_NEAR(out[i], exact, 1e-6 * std::fabs(exact) + 1e-12);
  }
}

TEST(Elementwise, SigmoidGateIsCorrect) {
  Rng rng(35);
  const std::vector<float> gate = random_floats(rng, 333, 5.0F), x = random_floats(rng, 333);
  std::vector<float> out(333);
  select_kernels(KernelIsa::best).sigmoid_mul(gate.data(), x.data(), out.data(), 333);
  for (std::size_t i = 0; i < 333; ++i) {
    const double exact = double{x[i]} / (1.0 + std::exp(-double{gate[i]}));
    ASSERT_NEAR(out[i], exact, 1e-6 * std::fabs(exact) + 1e-12);
  }
}

TEST(Elementwise, OutputsMayOverwriteInputs) {
  Rng rng(33);
  for (const std::uint32_t n : {1U, 16U, 33U, 576U}) {
    const std::vector<float> a = random_floats(rng, n);
    const std::vector<float> b = random_floats(rng, n);
    for (const Kernels* kernels : available_kernels()) {
      std::vector<float> apart(n), over_a = a, over_b = b;
      kernels->silu_mul(a.data(), b.data(), apart.data(), n);
      kernels->silu_mul(over_a.data(), b.data(), over_a.data(), n);
      kernels->silu_mul(a.data(), over_b.data(), over_b.data(), n);
      EXPECT_TRUE(same_bits(over_a, apart) && same_bits(over_b, apart)) << kernels->name;
      over_a = a;
      over_b = b;
      kernels->gelu_mul(a.data(), b.data(), apart.data(), n);
      kernels->gelu_mul(over_a.data(), b.data(), over_a.data(), n);
      kernels->gelu_mul(a.data(), over_b.data(), over_b.data(), n);
      EXPECT_TRUE(same_bits(over_a, apart) && same_bits(over_b, apart)) << kernels->name;
      over_a = a;
      kernels->rms_norm(a.data(), b.data(), 1e-5F, apart.data(), n);
      kernels->rms_norm(over_a.data(), b.data(), 1e-5F, over_a.data(), n);
      EXPECT_TRUE(same_bits(over_a, apart)) << kernels->name;
    }
  }
}

// No kernel writes past the end, even if the length is not a multiple of the vector width.
TEST(Elementwise, WritesOnlyItsLength) {
  for (const Kernels* kernels : available_kernels()) {
    for (std::uint32_t n = 1; n <= 40; ++n) {
      std::vector<float> x(n + 16, 2.0F);
      const std::vector<float> y(n + 16, NAN);
      std::vector<float> weight(n, 1.0F);
      kernels->rms_norm(x.data(), weight.data(), 1e-5F, x.data(), n);
      kernels->silu_mul(x.data(), weight.data(), x.data(), n);
      kernels->gelu_mul(x.data(), weight.data(), x.data(), n);
      kernels->soft_cap(x.data(), 3.0F, n);
      kernels->swiglu_limited(x.data(), weight.data(), 3.0F, x.data(), n);
      kernels->add(x.data(), y.data(), n);
      for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(std::isnan(x[i]), i < n) << kernels->name << " n " << n;
      for (std::size_t i = n; i < x.size(); ++i) ASSERT_EQ(x[i], 2.0F) << kernels->name << " n " << n;
    }
  }
}

TEST(Elementwise, NormOfZerosIsZero) {
  for (const Kernels* kernels : available_kernels()) {
    std::vector<float> x(50, 0.0F);
    const std::vector<float> weight(50, 3.0F);
    kernels->rms_norm(x.data(), weight.data(), 1e-5F, x.data(), 50);
    for (const float value : x) EXPECT_EQ(value, 0.0F) << kernels->name;
  }
}

TEST(Elementwise, GeluAndSoftCapAreCloseToDoublePrecisionOnEveryTable) {
  Rng rng(36);
  std::vector<float> x = random_floats(rng, 3000, 4.0F);
  for (const float value : {0.0F, 1e-4F, -1e-4F, 30.0F, -30.0F, 1e4F, -1e4F}) x.push_back(value);
  const auto n = static_cast<std::uint32_t>(x.size());
  const std::vector<float> ones(n, 1.0F);
  std::vector<float> gelu(n), capped = x;
  const Kernels& reference = select_kernels(KernelIsa::reference);
  reference.gelu_mul(x.data(), ones.data(), gelu.data(), n);
  reference.soft_cap(capped.data(), 5.0F, n);
  for (std::uint32_t i = 0; i < n; ++i) {
    const double v = x[i];
    const double exact = 0.5 * v * (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (v + 0.044715 * v * v * v)));
    ASSERT_NEAR(gelu[i], exact, 1e-6 * std::max(1.0, std::fabs(v))) << v;
    ASSERT_NEAR(capped[i], 5.0 * std::tanh(v / 5.0), 4e-7 * std::min(5.0, std::fabs(v))) << v;
  }
  for (const Kernels* kernels : fast_kernels()) {
    std::vector<float> other(n), other_capped = x;
    kernels->gelu_mul(x.data(), ones.data(), other.data(), n);
    kernels->soft_cap(other_capped.data(), 5.0F, n);
    EXPECT_TRUE(same_bits(other, gelu) && same_bits(other_capped, capped)) << kernels->name;
  }
}

TEST(Elementwise, TheClampedGateIsCloseToDoublePrecisionOnEveryTable) {
  Rng rng(37);
  std::vector<float> gate = random_floats(rng, 1003, 6.0F), up = random_floats(rng, 1003, 6.0F);
  for (const float value : {0.0F, 7.0F, -7.0F, 1e30F, -1e30F}) {
    gate.push_back(value);
    up.push_back(-value);
  }
  const auto n = static_cast<std::uint32_t>(gate.size());
  for (const Kernels* kernels : available_kernels()) {
    std::vector<float> out(n), over_gate = gate, over_up = up, plain(n);
    kernels->swiglu_limited(gate.data(), up.data(), 7.0F, out.data(), n);
    kernels->swiglu_limited(over_gate.data(), up.data(), 7.0F, over_gate.data(), n);
    kernels->swiglu_limited(gate.data(), over_up.data(), 7.0F, over_up.data(), n);
    select_kernels(KernelIsa::reference).swiglu_limited(gate.data(), up.data(), 7.0F, plain.data(), n);
    EXPECT_TRUE(same_bits(over_gate, out) && same_bits(over_up, out) && same_bits(plain, out)) << kernels->name;
    for (std::uint32_t i = 0; i < n; ++i) {
      const double g = std::min<double>(gate[i], 7.0), u = std::clamp<double>(up[i], -7.0, 7.0);
      const double exact = (u + 1.0) * g / (1.0 + std::exp(-1.702 * g));
      ASSERT_NEAR(out[i], exact, 2e-6 * std::max(1.0, std::fabs(exact))) << gate[i] << " " << up[i];
    }
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      const float one = 1.0F;
      float results[2] = {};
      kernels->swiglu_limited(&bad, &one, 7.0F, &results[0], 1);
      kernels->swiglu_limited(&one, &bad, 7.0F, &results[1], 1);
      EXPECT_TRUE(std::isnan(results[0]) && std::isnan(results[1])) << kernels->name << " " << bad;
    }
  }
}

TEST(Elementwise, SoftCapOfNaNOrInfIsNaN) {
  for (const Kernels* kernels : available_kernels()) {
    std::vector<float> x{NAN, INFINITY, -INFINITY, 1.0F};
    kernels->soft_cap(x.data(), 30.0F, 4);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(std::isnan(x[i])) << kernels->name << " " << i;
    EXPECT_LT(x[3], 1.0F);
  }
}

TEST(Elementwise, SiluOfLargeValuesIsFinite) {
  const Kernels& kernels = select_kernels(KernelIsa::best);
  const std::vector<float> gate{-1000.0F, -88.0F, 0.0F, 1000.0F};
  const std::vector<float> up(4, 1.0F);
  std::vector<float> out(4);
  kernels.silu_mul(gate.data(), up.data(), out.data(), 4);
  EXPECT_NEAR(out[0], 0.0F, 1e-30F);
  EXPECT_NEAR(out[1], 0.0F, 1e-30F);
  EXPECT_EQ(out[2], 0.0F);
  EXPECT_EQ(out[3], 1000.0F);
}

TEST(Rope, BothStylesRotateTheirPairsAndLeaveTheRestUnchanged) {
  const std::vector<float> frequencies{1.0F, 0.1F};
  std::vector<float> cosines(2);
  std::vector<float> sines(2);
  rope_angles(3, frequencies, cosines, sines);
  EXPECT_FLOAT_EQ(cosines[0], static_cast<float>(std::cos(3.0)));
  EXPECT_FLOAT_EQ(sines[1], static_cast<float>(std::sin(0.3)));
  const Kernels& kernels = select_kernels(KernelIsa::best);
  const std::vector<float> x{1, 2, 3, 4, 5, 6, 10, 20, 30, 40, 50, 60};  // two heads of 6; the first 4 elements rotate
  std::vector<float> half = x;
  std::vector<float> pairs = x;
  kernels.rope(RopeStyle::half_split, half.data(), 2, 6, 4, cosines.data(), sines.data());
  kernels.rope(RopeStyle::interleaved, pairs.data(), 2, 6, 4, cosines.data(), sines.data());
  const auto first = [&](float a, float b, std::size_t i) { return a * cosines[i] - b * sines[i]; };
  const auto second = [&](float a, float b, std::size_t i) { return b * cosines[i] + a * sines[i]; };
  EXPECT_EQ(half, (std::vector<float>{first(1, 3, 0), first(2, 4, 1), second(1, 3, 0), second(2, 4, 1), 5, 6, first(10, 30, 0),
                                      first(20, 40, 1), second(10, 30, 0), second(20, 40, 1), 50, 60}));
  EXPECT_EQ(pairs, (std::vector<float>{first(1, 2, 0), second(1, 2, 0), first(3, 4, 1), second(3, 4, 1), 5, 6, first(10, 20, 0),
                                       second(10, 20, 0), first(30, 40, 1), second(30, 40, 1), 50, 60}));
}

TEST(Rope, AnglesInLongContextsAreCloseToDoublePrecision) {
  const std::vector<float> frequencies{1.0F, 0.7498942F, 1e-3F, 1e-6F};
  std::vector<float> cosines(4), sines(4);
  for (const std::uint32_t position : {0U, 1U, 8191U, 131'071U, 10'000'000U}) {
    rope_angles(position, frequencies, cosines, sines);
    for (std::size_t i = 0; i < 4; ++i) {
      const double angle = position * static_cast<double>(frequencies[i]);
      EXPECT_EQ(cosines[i], static_cast<float>(std::cos(angle)));
      EXPECT_EQ(sines[i], static_cast<float>(std::sin(angle)));
    }
  }
}

TEST(Rope, KeepsTheLengthOfPairsAndAgreesAcrossTables) {
  Rng rng(35);
  const std::vector<float> frequencies{1.0F, 0.3F, 0.09F, 0.027F};
  std::vector<float> cosines(4), sines(4);
  rope_angles(77, frequencies, cosines, sines);
  for (const RopeStyle style : {RopeStyle::half_split, RopeStyle::interleaved}) {
    const std::vector<float> x = random_floats(rng, 3 * 10);  // three heads of 10; the first 8 elements rotate
    std::vector<float> expected = x;
    select_kernels(KernelIsa::reference).rope(style, expected.data(), 3, 10, 8, cosines.data(), sines.data());
    for (const Kernels* kernels : fast_kernels()) {
      std::vector<float> rotated = x;
      kernels->rope(style, rotated.data(), 3, 10, 8, cosines.data(), sines.data());
      EXPECT_TRUE(same_bits(rotated, expected)) << kernels->name;
    }
    for (std::size_t head = 0; head < 3; ++head) {
      for (std::size_t i = 0; i < 4; ++i) {
        const std::size_t a = head * 10 + (style == RopeStyle::half_split ? i : 2 * i);
        const std::size_t b = style == RopeStyle::half_split ? a + 4 : a + 1;
        EXPECT_NEAR(std::hypot(expected[a], expected[b]), std::hypot(x[a], x[b]), 1e-6);
      }
      EXPECT_EQ(expected[head * 10 + 8], x[head * 10 + 8]);
      EXPECT_EQ(expected[head * 10 + 9], x[head * 10 + 9]);
    }
  }
  if (fast_kernels().empty()) GTEST_SKIP() << kNothingToCompare;
}

TEST(RopeDeath, RequiresOneSinePerFrequency) {
  const std::vector<float> frequencies(2, 1.0F);
  std::vector<float> two(2), three(3);
  EXPECT_DEATH(rope_angles(1, frequencies, two, three), "one sine per frequency");
}

TEST(Kernels, EveryInstructionSetHasATableOrReportsWhyNot) {
  ASSERT_TRUE(find_kernels(KernelIsa::best).has_value());
  ASSERT_TRUE(find_kernels(KernelIsa::reference).has_value());
  for (const KernelIsa isa : kFastIsas) {
    const auto found = find_kernels(isa);
    if (!found) EXPECT_EQ(found.error().code, ErrorCode::unsupported);
  }
  // If the processor is known (tests under qemu), the table that is selected for it is known, too.
  if (const char* expected = std::getenv("QUIRE_EXPECT_ISA")) EXPECT_STREQ(select_kernels(KernelIsa::best).name, expected);
  std::vector<float> x{1, 2};
  const std::vector<float> y{3, 4};
  select_kernels(KernelIsa::best).add(x.data(), y.data(), 2);
  EXPECT_EQ(x, (std::vector<float>{4, 6}));
}

}  // namespace
}  // namespace quire
