// Tests whether a victim is swapped under SwapChoice::measured. Seeded random cases lie just below and just above the limit that the test
// computes itself.
#include <gtest/gtest.h>

#include "base/random.h"
#include "core/schedule/core_driver.h"
#include "support/rounds.h"

namespace quire::test {
namespace {

// Bytes of a block: tokens, keys and values, heads, head size, bytes per element.
constexpr double kBytes = 4 * 2 * 8 * 16 * 2;

CoreConfig measured(std::uint32_t num_near, std::uint32_t num_far) {
  CoreConfig config = sync_config(5);
  config.swap = {.num_swap_slots = num_near + num_far, .num_slow_slots = num_far, .swap_choice = SwapChoice::measured};
  FullAttentionSpec& spec = std::get<FullAttentionSpec>(config.kv.groups[0].spec);
  spec.num_kv_heads = 8;
  spec.head_size = 16;
  spec.dtype = {"bfloat16", 2};
  return config;
}

struct Lengths {
  std::uint32_t num_prompt_tokens, max_tokens;
};

// Makes a core in which request 2 was preempted for request 1 in the second plan.
CoreDriver preempt_2(const CoreConfig& config, const SwapCosts& costs, Lengths first, Lengths second) {
  CoreDriver d(config);
  d.core->set_swap_costs(costs);
  d.add(1, first.num_prompt_tokens, first.max_tokens);
  d.add(2, second.num_prompt_tokens, second.max_tokens);
  d.step();
  d.plan();
  EXPECT_EQ(d.view(2).status, RequestStatus::preempted);
  return d;
}

// Returns whether request 2 is swapped. It has 7 computed tokens in 2 blocks when it is preempted.
bool swaps(const CoreConfig& config, const SwapCosts& costs) {
  CoreDriver d = preempt_2(config, costs, {8, 8}, {7, 8});
  const bool swaps = d.core->counters().num_swapped_out == 1;
  EXPECT_EQ(d.core->counters().num_swaps_no_gain, swaps ? 0U : 1U);
  d.apply();
  return swaps;
}

// Checks the choice just below and just above the limit, with the given bytes in fast and in slow slots.
void expect_limit(const CoreConfig& config, double near_bytes, double far_bytes, double unit, Random& random) {
  const auto speed = [&] { return unit * static_cast<double>(random.between(1, 1000)) / 100.0; };
  SwapCosts costs{.out_bytes_per_s = speed(), .in_bytes_per_s = speed()};
  costs.disk_out_bytes_per_s = speed();
  costs.disk_in_bytes_per_s = speed();
  const double seconds = near_bytes / costs.out_bytes_per_s + near_bytes / costs.in_bytes_per_s + far_bytes / costs.disk_out_bytes_per_s +
                         far_bytes / costs.disk_in_bytes_per_s;
  constexpr double kPart = 1e-5;  // changes the limit by less than one byte does
  costs.prefill_tokens_per_s = 7.0 / (seconds * (1.0 + kPart));
  EXPECT_TRUE(swaps(config, costs));
  costs.prefill_tokens_per_s = 7.0 / (seconds * (1.0 - kPart));
  EXPECT_FALSE(swaps(config, costs));
}

TEST(SwapCosts, CompareTransfersOfFastAndSlowSlotsWithRecomputation) {
  for (std::uint64_t seed = 1; seed <= rounds_of(100); ++seed) {
    Random random(seed);
    const auto num_near = static_cast<std::uint32_t>(random.below(4));
    const double far_bytes = kBytes * (2 - std::min(num_near, 2U));
    // The unit is one block per second, or less than one byte. Each speed except 0 is known.
    expect_limit(measured(num_near, 4), 2 * kBytes - far_bytes, far_bytes, random.chance(0.5) ? kBytes : 1e-4, random);
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
}

// Each token has one byte.
TEST(SwapCosts, CountSingleBytes) {
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

TEST(SwapCosts, DoNotSwapWhenANeededSpeedIsUnknown) {
  const SwapCosts all{
      .out_bytes_per_s = 1e9, .in_bytes_per_s = 1e9, .disk_out_bytes_per_s = 1e9, .disk_in_bytes_per_s = 1e9, .prefill_tokens_per_s = 1.0};
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
      EXPECT_EQ(swaps(config, without(cost)), num_near == 0) << "there are no fast slots";
    for (const auto cost : {&SwapCosts::disk_out_bytes_per_s, &SwapCosts::disk_in_bytes_per_s})
      EXPECT_EQ(swaps(config, without(cost)), num_near == 2) << "all blocks fit in fast slots";
  }
}

// The longest group determines how many tokens would be computed. The blocks of each group are moved.
TEST(SwapCosts, CountBlocksOfAllGroupsAndTokensOnce) {
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
  EXPECT_TRUE(swaps(config, costs)) << "4 blocks take one second each in each direction";
  costs.prefill_tokens_per_s = 7.0 / (8.0 * (1.0 - 1e-5));
  EXPECT_FALSE(swaps(config, costs));
}

// Returns whether request 2 is swapped. It has one token in one block of one byte when request 1 needs the last block.
bool swaps_a_byte(bool is_far, const SwapCosts& costs) {
  CoreConfig config = sync_config(5);
  config.block_size = 1;
  MlaAttentionSpec spec;
  spec.block_size = 1;
  spec.dtype = {"int8", 1};
  config.kv.groups[0].spec = spec;
  config.swap = {.num_swap_slots = 4, .num_slow_slots = is_far ? 4U : 0U, .swap_choice = SwapChoice::measured};
  const CoreDriver d = preempt_2(config, costs, {3, 2}, {1, 3});
  const std::uint64_t num_swapped = d.core->counters().num_swapped_out;
  EXPECT_EQ(d.core->counters().num_swapped_out_blocks, num_swapped);
  return num_swapped == 1;
}

// Each direction takes one second.
TEST(SwapCosts, AcceptOneBytePerSecond) {
  for (const bool is_far : {false, true}) {
    SwapCosts costs = is_far ? SwapCosts{.disk_out_bytes_per_s = 1.0, .disk_in_bytes_per_s = 1.0}
                             : SwapCosts{.out_bytes_per_s = 1.0, .in_bytes_per_s = 1.0};
    costs.prefill_tokens_per_s = 0.499;
    EXPECT_TRUE(swaps_a_byte(is_far, costs)) << is_far;
    costs.prefill_tokens_per_s = 0.501;
    EXPECT_FALSE(swaps_a_byte(is_far, costs)) << is_far;
  }
}

TEST(SwapCosts, TreatANegativeSpeedAsUnknown) {
  EXPECT_FALSE(swaps_a_byte(true, {.disk_out_bytes_per_s = -1.0, .disk_in_bytes_per_s = 1.0, .prefill_tokens_per_s = 0.1}));
  EXPECT_FALSE(swaps_a_byte(true, {.disk_out_bytes_per_s = 1.0, .disk_in_bytes_per_s = -1.0, .prefill_tokens_per_s = 0.1}));
  EXPECT_FALSE(swaps_a_byte(false, {.out_bytes_per_s = -1.0, .in_bytes_per_s = 1.0, .prefill_tokens_per_s = 0.1}));
  EXPECT_FALSE(swaps_a_byte(false, {.out_bytes_per_s = 1.0, .in_bytes_per_s = -1.0, .prefill_tokens_per_s = 0.1}));
}

}  // namespace
}  // namespace quire::test
