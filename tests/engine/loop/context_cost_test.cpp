// Tests ContextCost on machines whose costs are known, with noise.
#include "engine/loop/context_cost.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "base/random.h"
#include "support/rounds.h"

namespace quire::test {
namespace {

constexpr double kToken_s = 1e-4;

// A step's time varies by about a tenth.
double noisy(Random& random, double seconds) {
  double sum = 0.0;
  for (int i = 0; i < 12; ++i) sum += random.unit() - 0.5;
  return seconds * std::exp(0.1 * sum);
}

// Observes steps on a machine on which a token costs twice as much after `double_at` others. `context_of(i)`: of step i.
void observe(ContextCost& cost, Random& random, double double_at, int num_steps, const std::function<double(int)>& context_of,
             double token_s = kToken_s) {
  for (int i = 0; i < num_steps; ++i) cost.observe(context_of(i), noisy(random, token_s * (1.0 + context_of(i) / double_at)));
}

double long_prompts(int step) {
  return step * 500 % 6000;
}

TEST(ContextCost, IsNotKnownAtFirst) {
  ContextCost cost;
  EXPECT_EQ(cost.context_of_double_cost(), 0U);
  cost.observe(0.0, kToken_s);
  EXPECT_EQ(cost.context_of_double_cost(), 0U);
}

TEST(ContextCost, IsFoundAfterFewLongPrompts) {
  for (const double double_at : {300.0, 1500.0, 8000.0}) {
    for (std::uint64_t seed = 0; seed < rounds_of(50); ++seed) {
      Random random(seed);
      ContextCost cost;
      observe(cost, random, double_at, 100, long_prompts);
      EXPECT_GT(cost.context_of_double_cost(), double_at / 1.7) << double_at << ", seed " << seed;
      EXPECT_LT(cost.context_of_double_cost(), double_at * 1.7) << double_at << ", seed " << seed;
    }
  }
}

// The machine gets busy and idle again, so the time per token doubles, but not because of the context.
TEST(ContextCost, IsTheSameOnABusyMachine) {
  for (std::uint64_t seed = 0; seed < rounds_of(50); ++seed) {
    Random random(seed);
    ContextCost cost;
    for (int i = 0; i < 10; ++i) observe(cost, random, 1500.0, 60, long_prompts, kToken_s * (1 + i % 2));
    EXPECT_GT(cost.context_of_double_cost(), 1500 / 1.7) << "seed " << seed;
    EXPECT_LT(cost.context_of_double_cost(), 1500 * 1.7) << "seed " << seed;
  }
}

// Later all requests continue long chats. A fit of the newest steps alone would forget what a short context costs.
TEST(ContextCost, IsKeptWhileAllContextsAreLong) {
  for (std::uint64_t seed = 0; seed < rounds_of(50); ++seed) {
    Random random(seed);
    ContextCost cost;
    observe(cost, random, 1500.0, 100, long_prompts);
    observe(cost, random, 1500.0, 1000, [](int step) { return 25'000.0 + step % 50 * 100; });
    EXPECT_GT(cost.context_of_double_cost(), 1500 / 1.7) << "seed " << seed;
    EXPECT_LT(cost.context_of_double_cost(), 1500 * 1.7) << "seed " << seed;
  }
}

TEST(ContextCost, ChangesRarely) {
  Random random(5);
  ContextCost cost;
  int num_changes = 0;
  std::uint32_t last = 0;
  for (int i = 0; i < 2000; ++i) {
    observe(cost, random, 3000.0, 1, [&](int) { return long_prompts(i); });
    num_changes += cost.context_of_double_cost() != last ? 1 : 0;
    last = cost.context_of_double_cost();
  }
  EXPECT_LE(num_changes, 6);
}

// Short chats show little of what a long context costs, so nothing is assumed.
TEST(ContextCost, IsNotGuessedFromShortContexts) {
  Random random(1);
  ContextCost cost;
  observe(cost, random, 40'000.0, 100, [](int step) { return step % 200; });
  EXPECT_EQ(cost.context_of_double_cost(), 0U);
}

TEST(ContextCost, StaysInItsRangeWhateverTheTimesAre) {
  Random random(3);
  ContextCost cost;
  for (int i = 0; i < 2000; ++i) {
    cost.observe(static_cast<double>(random.below(1'000'000)), std::exp(40.0 * random.unit() - 20.0));
    if (cost.context_of_double_cost() == 0) continue;
    EXPECT_GE(cost.context_of_double_cost(), 63U);
    EXPECT_LE(cost.context_of_double_cost(), 1U << 20U);
  }
}

}  // namespace
}  // namespace quire::test
