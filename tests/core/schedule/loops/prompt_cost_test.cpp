// Tests PromptCost against the sum over single tokens.
#include "core/schedule/loops/prompt_cost.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "support/rounds.h"

namespace quire::test {
namespace {

TEST(PromptCost, IsTheNumberOfTokensWithoutAContextOfDoubleCost) {
  const PromptCost cost;
  EXPECT_EQ(cost.of(17, 1000), 17);
  EXPECT_EQ(cost.tokens_within(17, 1000, 30), 17);
  EXPECT_EQ(cost.tokens_within(17, 1000, 9), 9);
  EXPECT_EQ(cost.tokens_within(0, 1000, 9), 0);
  EXPECT_EQ(cost.tokens_within(-5, 1000, 9), 0);
}

TEST(PromptCost, DoublesAtTheContext) {
  const PromptCost cost(1000);
  EXPECT_EQ(cost.of(10, 0), 10);
  EXPECT_EQ(cost.of(10, 1000), 20);
  EXPECT_EQ(cost.of(10, 9000), 100);
  EXPECT_EQ(cost.of(1000, 0), 1500) << "the last of these tokens costs almost twice as much as the first";
  EXPECT_EQ(cost.tokens_within(100, 9000, 50), 10);
  EXPECT_EQ(cost.tokens_within(1500, 0, 5000), 1000);
  EXPECT_EQ(cost.tokens_within(1, 9000, 50), 0);
}

TEST(PromptCost, IsTheSumOverTheTokens) {
  for (std::uint64_t seed = 0; seed < rounds_of(200); ++seed) {
    Random random(seed);
    const auto double_at = static_cast<std::uint32_t>(1 + random.below(20'000));
    const auto context = static_cast<std::int64_t>(random.below(100'000)), num_tokens = static_cast<std::int64_t>(random.below(3000));
    const PromptCost cost(double_at);
    double sum = 0.0;
    for (std::int64_t i = 0; i < num_tokens; ++i) sum += 1.0 + (static_cast<double>(context + i) + 0.5) / double_at;
    EXPECT_NEAR(static_cast<double>(cost.of(num_tokens, context)), sum - 0.5, 0.5 + 1e-6 * sum) << "seed " << seed;

    const auto within = static_cast<std::int64_t>(random.below(10'000));
    const std::int64_t fitting = cost.tokens_within(within, context, num_tokens);
    EXPECT_LE(cost.of(fitting, context), within) << "seed " << seed;
    if (fitting < num_tokens) EXPECT_GT(cost.of(fitting + 1, context), within) << "seed " << seed;
  }
}

TEST(PromptCost, OfTheLargestNumbersDoesNotOverflow) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30U;
  EXPECT_EQ(PromptCost(1).of(kMost, 2 * kMost), kMost + kMost * 5 * (kMost / 2));
  EXPECT_EQ(PromptCost(1).of(2 * kMost, 0), 2 * kMost + 2 * kMost * kMost);
  EXPECT_EQ(PromptCost(UINT32_MAX).tokens_within(UINT32_MAX, 0, kMost), kMost);
}

}  // namespace
}  // namespace quire::test
