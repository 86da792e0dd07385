// Whether a victim is swapped under SwapChoice::measured: beside the same sum done by hand, in seeded random cases just on this side of the
// limit and just on the other.
#include <gtest/gtest.h>

#include "base/random.h"
#include "core/schedule/core_driver.h"
#include "support/rounds.h"

namespace quire::test {
namespace {

// A block of a group: tokens, keys and values, heads, their size, bytes.
constexpr double kBytes = 4 * 2 * 8 * 16 * 2;

CoreConfig measured(std::uint32_t num_near, std::uint32_t num_far) {
  CoreConfig config = sync_config(5);
  config.swap = {.num_swap_places = num_near + num_far, .num_far_places = num_far, .swap_choice = SwapChoice::measured};
  FullAttentionSpec& spec = std::get<FullAttentionSpec>(config.kv.groups[0].spec);
  spec.num_kv_heads = 8;
  spec.head_size = 16;
  spec.dtype = {"bfloat16", 2};
  return config;
}

struct Lengths {
  std::uint32_t num_prompt_tokens, max_tokens;
};

// Request 2 has given way to request 1 in the second plan.
CoreDriver give_way(const CoreConfig& config, const SwapCosts& costs, Lengths first, Lengths second) {
  CoreDriver d(config);
  d.core->set_swap_costs(costs);
  d.add(1, first.num_prompt_tokens, first.max_tokens);
  d.add(2, second.num_prompt_tokens, second.max_tokens);
  d.step();
  d.plan();
  EXPECT_EQ(d.view(2).status, RequestStatus::preempted);
  return d;
}

// Request 2 has 7 computed tokens in 2 blocks when it gives way.
bool swaps(const CoreConfig& config, const SwapCosts& costs) {
  CoreDriver d = give_way(config, costs, {8, 8}, {7, 8});
  const bool swaps = d.core->counters().num_swapped_out == 1;
  EXPECT_EQ(d.core->counters().num_swaps_no_gain, swaps ? 0U : 1U);
  d.apply();
  return swaps;
}

// Of the bytes that go to near and to far places: just on this side of the limit and just on the other.
void expect_limit(const CoreConfig& config, double near_bytes, double far_bytes, double unit, Random& random) {
  const auto speed = [&] { return unit * static_cast<double>(random.between(1, 1000)) / 100.0; };
  SwapCosts costs{.out_bytes_per_s = speed(), .in_bytes_per_s = speed()};
  costs.far_out_bytes_per_s = speed();
  costs.far_in_bytes_per_s = speed();
  const double seconds = near_bytes / costs.out_bytes_per_s + near_bytes / costs.in_bytes_per_s + far_bytes / costs.far_out_bytes_per_s +
                         far_bytes / costs.far_in_bytes_per_s;
  constexpr double kPart = 1e-5;  // less than one byte in all these makes
  costs.prefill_tokens_per_s = 7.0 / (seconds * (1.0 + kPart));
  EXPECT_TRUE(swaps(config, costs));
  costs.prefill_tokens_per_s = 7.0 / (seconds * (1.0 - kPart));
  EXPECT_FALSE(swaps(config, costs));
}

TEST(SwapCosts, OutAndInOfNearAndFarPlacesAgainstComputingTheTokens) {
  for (std::uint64_t seed = 1; seed <= rounds_of(100); ++seed) {
    Random random(seed);
    const auto num_near = static_cast<std::uint32_t>(random.below(4));
    const double far_bytes = kBytes * (2 - std::min(num_near, 2U));
    // Blocks in a second, or less than a byte: each speed but 0 is known.
    expect_limit(measured(num_near, 4), 2 * kBytes - far_bytes, far_bytes, random.chance(0.5) ? kBytes : 1e-4, random);
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
}

// Of which a token has one.
TEST(SwapCosts, ASingleByteCounts) {
  MlaAttentionSpec spec;
  spec.block_size = 1;
  spec.num_kv_heads = 1;
  spec.head_size = 1;
  spec.dtype = {"uint8", 1};
  for (std::uint32_t num_near = 0; num_near <= 7; ++num_near) {
    CoreConfig config = measured(num_near, 7);
    config.block_size = 1;
    config.kv.num_blocks = 16;
    config.kv.groups[0].spec = spec;
    Random random(num_near);
    expect_limit(config, num_near, 7 - num_near, 1.0, random);
  }
}

TEST(SwapCosts, WhatIsNotKnownMattersWhereItIsNeeded) {
  const SwapCosts all{
      .out_bytes_per_s = 1e9, .in_bytes_per_s = 1e9, .far_out_bytes_per_s = 1e9, .far_in_bytes_per_s = 1e9, .prefill_tokens_per_s = 1.0};
  const auto without = [&](double SwapCosts::* cost) {
    SwapCosts costs = all;
    costs.*cost = 0.0;
    return costs;
  };
  for (const std::uint32_t num_near : {0U, 1U, 2U}) {
    const CoreConfig config = measured(num_near, 2);
    EXPECT_TRUE(swaps(config, all));
    EXPECT_FALSE(swaps(config, without(&SwapCosts::prefill_tokens_per_s)));
    for (const auto cost : {&SwapCosts::out_bytes_per_s, &SwapCosts::in_bytes_per_s})
      EXPECT_EQ(swaps(config, without(cost)), num_near == 0) << "there are no near places";
    for (const auto cost : {&SwapCosts::far_out_bytes_per_s, &SwapCosts::far_in_bytes_per_s})
      EXPECT_EQ(swaps(config, without(cost)), num_near == 2) << "all find near places";
  }
}

// The longest of the groups says how many tokens would be computed, and each group's blocks are moved.
TEST(SwapCosts, OfSeveralGroupsAllBlocksAreMovedAndTokensComputedOnce) {
  CoreConfig config = measured(8, 0);
  config.kv.num_blocks = 9;
  SlidingWindowSpec window;
  window.block_size = kBlockSize;
  window.sliding_window = 64;
  window.num_kv_heads = 8;
  window.head_size = 16;
  window.dtype = {"bfloat16", 2};
  config.kv.groups.push_back({.layer_names = {"window"}, .spec = window, .layer_specs = {}});
  SwapCosts costs{.out_bytes_per_s = kBytes, .in_bytes_per_s = kBytes, .prefill_tokens_per_s = 7.0 / (8.0 * (1.0 + 1e-5))};
  EXPECT_TRUE(swaps(config, costs)) << "4 blocks, a second each way";
  costs.prefill_tokens_per_s = 7.0 / (8.0 * (1.0 - 1e-5));
  EXPECT_FALSE(swaps(config, costs));
}

// 2 has one token in one block, of one byte, when 1 wants the last one.
bool swaps_a_byte(bool is_far, const SwapCosts& costs) {
  CoreConfig config = sync_config(5);
  config.block_size = 1;
  MlaAttentionSpec spec;
  spec.block_size = 1;
  spec.dtype = {"int8", 1};
  config.kv.groups[0].spec = spec;
  config.swap = {.num_swap_places = 4, .num_far_places = is_far ? 4U : 0U, .swap_choice = SwapChoice::measured};
  const CoreDriver d = give_way(config, costs, {3, 2}, {1, 3});
  const std::uint64_t num_swapped = d.core->counters().num_swapped_out;
  EXPECT_EQ(d.core->counters().num_swapped_out_blocks, num_swapped);
  return num_swapped == 1;
}

// A second out, and one in.
TEST(SwapCosts, AByteASecondIsASpeedAndAByteIsMoved) {
  for (const bool is_far : {false, true}) {
    SwapCosts costs = is_far ? SwapCosts{.far_out_bytes_per_s = 1.0, .far_in_bytes_per_s = 1.0}
                             : SwapCosts{.out_bytes_per_s = 1.0, .in_bytes_per_s = 1.0};
    costs.prefill_tokens_per_s = 0.499;
    EXPECT_TRUE(swaps_a_byte(is_far, costs)) << is_far;
    costs.prefill_tokens_per_s = 0.501;
    EXPECT_FALSE(swaps_a_byte(is_far, costs)) << is_far;
  }
}

TEST(SwapCosts, ANegativeSpeedIsNotKnown) {
  EXPECT_FALSE(swaps_a_byte(true, {.far_out_bytes_per_s = -1.0, .far_in_bytes_per_s = 1.0, .prefill_tokens_per_s = 0.1}));
  EXPECT_FALSE(swaps_a_byte(true, {.far_out_bytes_per_s = 1.0, .far_in_bytes_per_s = -1.0, .prefill_tokens_per_s = 0.1}));
  EXPECT_FALSE(swaps_a_byte(false, {.out_bytes_per_s = -1.0, .in_bytes_per_s = 1.0, .prefill_tokens_per_s = 0.1}));
  EXPECT_FALSE(swaps_a_byte(false, {.out_bytes_per_s = 1.0, .in_bytes_per_s = -1.0, .prefill_tokens_per_s = 0.1}));
}

}  // namespace
}  // namespace quire::test
