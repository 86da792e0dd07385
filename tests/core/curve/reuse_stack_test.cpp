// Compares the sampled stack with a list that keeps everything, in seeded random runs.
#include "core/curve/reuse_stack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <set>

#include "base/random.h"
#include "support/rounds.h"

namespace quire::test {
namespace {

// All hashes in the order of their release, and the held hashes.
struct NaiveStack {
  std::deque<std::uint64_t> order;  // the oldest release is first
  std::set<std::uint64_t> held;

  void take_out(std::uint64_t key) { std::erase(order, key); }
  void release(std::uint64_t key) {
    take_out(key);
    held.erase(key);
    order.push_back(key);
  }
  void hold(std::uint64_t key) {
    if (std::ranges::find(order, key) == order.end()) return;
    take_out(key);
    held.insert(key);
  }
  void forget(std::uint64_t key) {
    take_out(key);
    held.erase(key);
  }
  // Returns nullopt if the key is not released.
  [[nodiscard]] std::optional<std::size_t> num_after(std::uint64_t key) const {
    const auto found = std::ranges::find(order, key);
    return found == order.end() ? std::nullopt : std::optional(static_cast<std::size_t>(order.end() - found) - 1);
  }
};

std::uint64_t key_of(std::uint64_t number) {
  return Random(number).next();
}

TEST(ReuseStack, MatchesAListThatKeepsEverythingAtFullRate) {
  for (std::uint64_t seed = 1; seed <= rounds_of(20); ++seed) {
    Random random(seed);
    const auto num_names = static_cast<std::uint32_t>(random.between(1, 400));
    ReuseStack stack(num_names, 1e9, 1.0);
    NaiveStack naive;
    for (int i = 0; i < 4000; ++i) {
      const std::uint64_t key = key_of(random.below(num_names));
      switch (random.below(12)) {
        case 0:
          stack.forget(key);
          naive.forget(key);
          break;
        case 1:
        case 2:
          stack.hold(key);
          naive.hold(key);
          break;
        case 3:
          if (random.below(200) > 0) break;
          stack.clear();
          naive = {};
          break;
        default:
          stack.release(key);
          naive.release(key);
      }
      const std::uint64_t asked = key_of(random.below(num_names));
      const ReuseStack::Found found = stack.find(asked);
      const auto after = naive.num_after(asked);
      ASSERT_EQ(found.state == ReuseStack::State::released, after.has_value()) << seed;
      ASSERT_EQ(found.state == ReuseStack::State::held, naive.held.contains(asked)) << seed;
      if (after) ASSERT_EQ(found.num_after, static_cast<double>(*after)) << seed;
      ASSERT_EQ(stack.num_tracked(), naive.order.size() + naive.held.size());
      if (i % 16 == 0) stack.check_invariants();
    }
    ASSERT_EQ(stack.rate(), 1.0);
  }
}

// A hash is sampled by its product with an odd number. This hash has the largest product.
TEST(ReuseStack, SamplesEveryHashAtFullRate) {
  constexpr std::uint64_t kMix = 0x9E3779B97F4A7C15ULL;
  std::uint64_t inverse = 1;
  for (int i = 0; i < 64; ++i) inverse *= 2 - kMix * inverse;
  ASSERT_EQ(inverse * kMix, 1U);
  const std::uint64_t last = UINT64_MAX * inverse;
  ReuseStack stack(4, 1e9, 1.0);
  EXPECT_TRUE(stack.samples(last));
  EXPECT_TRUE(stack.samples(0));
  stack.release(last);
  EXPECT_EQ(stack.find(last).state, ReuseStack::State::released);
  stack.check_invariants();
  EXPECT_FALSE(ReuseStack(4, 1e9, 0.5).samples(last)) << "this hash is the first to be dropped";
  EXPECT_TRUE(ReuseStack(4, 1e9, 0.5).samples(0));
}

TEST(ReuseStack, CanTrackASingleHash) {
  ReuseStack stack(1, 1e9, 1.0);
  stack.release(key_of(1));
  EXPECT_EQ(stack.find(key_of(1)).state, ReuseStack::State::released);
  EXPECT_EQ(stack.find(key_of(2)).state, ReuseStack::State::unknown);
  stack.forget(key_of(1));
  EXPECT_EQ(stack.num_tracked(), 0U);
}

TEST(ReuseStack, ForgetsHashesThatNoSizeWouldKeep) {
  constexpr std::uint32_t kDepth = 100;
  ReuseStack stack(1000, kDepth, 1.0);
  for (std::uint64_t i = 0; i < 5000; ++i) stack.release(key_of(i));
  EXPECT_EQ(stack.rate(), 1.0) << "hashes that no size would keep are dropped";
  EXPECT_EQ(stack.find(key_of(4999 - kDepth)).num_after, kDepth);
  EXPECT_EQ(stack.find(key_of(4999 - kDepth - 1)).state, ReuseStack::State::unknown);
}

TEST(ReuseStack, HalvesItsRateWhenHashesAreTooManyAndStillEstimatesDistances) {
  constexpr std::uint32_t kMaxTracked = 4000, kNames = 60'000;
  ReuseStack stack(kMaxTracked, 1e9, 1.0);
  const std::uint64_t bytes = stack.num_bytes();
  for (std::uint64_t round = 0; round < 3; ++round) {
    for (std::uint64_t i = 0; i < kNames; ++i)
      if (const std::uint64_t key = key_of(i); stack.samples(key)) stack.release(key);
    ASSERT_LE(stack.num_tracked(), kMaxTracked);
    stack.check_invariants();
  }
  EXPECT_EQ(stack.rate(), 1.0 / 16.0);
  EXPECT_EQ(stack.num_bytes(), bytes) << "the memory use is unchanged";
  // Each of n later sampled hashes stands for 16: the standard deviation is sqrt(n * (1 - 1/16)) * 16.
  std::uint32_t num_asked = 0;
  for (std::uint64_t i = 0; i < kNames; i += 7) {
    const std::uint64_t key = key_of(i);
    if (!stack.samples(key)) continue;
    const ReuseStack::Found found = stack.find(key);
    ASSERT_EQ(found.state, ReuseStack::State::released);
    const auto after = static_cast<double>(kNames - 1 - i);
    EXPECT_NEAR(found.num_after, after, 4.0 * 16.0 * std::sqrt(after / 16.0) + 16.0);
    ++num_asked;
  }
  EXPECT_GT(num_asked, 300U);
}

TEST(ReuseStack, UsesAFewMiBByDefaultAndBelow32AtMost) {
  // Memory: hashes, buckets (a power of two), slots (twice the hashes, in groups of 256) with a bit each, and a number per group.
  EXPECT_EQ(ReuseStack(300, 1e9, 1.0).num_bytes(), std::uint64_t{300} * 16 + 512 * 4 + 768 * 4 + 768 / 8 + 3 * 4);
  EXPECT_LE(ReuseStack(131072, 1e9, 1.0).num_bytes(), std::uint64_t{131072} * 33);
  EXPECT_LE(ReuseStack(1'000'000, 1e9, 1.0).num_bytes(), std::uint64_t{32} << 20U);
}

}  // namespace
}  // namespace quire::test
