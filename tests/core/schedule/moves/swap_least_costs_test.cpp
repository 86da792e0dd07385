// What it costs to swap where a single byte is moved.
#include <gtest/gtest.h>

#include "core/schedule/core_driver.h"

namespace quire::test {
namespace {

// 2 has one token in one block, of one byte, when 1 wants the last one.
bool swaps_a_byte(bool is_far, const SwapCosts& costs) {
  CoreConfig config = sync_config(5);
  config.block_size = 1;
  MlaAttentionSpec spec;
  spec.block_size = 1;
  spec.dtype = {"int8", 1};
  config.kv.groups[0].spec = spec;
  config.swap = {.num_swap_places = 4, .num_far_places = is_far ? 4U : 0U, .swap_choice = SwapChoice::measured};
  CoreDriver d(config);
  d.core->set_swap_costs(costs);
  d.add(1, 3, 2);
  d.add(2, 1, 3);
  d.step();
  d.plan();
  EXPECT_EQ(d.view(2).status, RequestStatus::preempted);
  const std::uint64_t num_swapped = d.core->counters().num_swapped_out;
  EXPECT_EQ(d.core->counters().num_swapped_out_blocks, num_swapped);
  return num_swapped == 1;
}

// A second out, and one in.
TEST(SwapCostsOfAByte, AByteASecondIsASpeedAndAByteIsMoved) {
  for (const bool is_far : {false, true}) {
    SwapCosts costs = is_far ? SwapCosts{.far_out_bytes_per_s = 1.0, .far_in_bytes_per_s = 1.0}
                             : SwapCosts{.out_bytes_per_s = 1.0, .in_bytes_per_s = 1.0};
    costs.prefill_tokens_per_s = 0.499;
    EXPECT_TRUE(swaps_a_byte(is_far, costs)) << is_far;
    costs.prefill_tokens_per_s = 0.501;
    EXPECT_FALSE(swaps_a_byte(is_far, costs)) << is_far;
  }
}

TEST(SwapCostsOfAByte, ANegativeSpeedIsNotKnown) {
  EXPECT_FALSE(swaps_a_byte(true, {.far_out_bytes_per_s = -1.0, .far_in_bytes_per_s = 1.0, .prefill_tokens_per_s = 0.1}));
  EXPECT_FALSE(swaps_a_byte(true, {.far_out_bytes_per_s = 1.0, .far_in_bytes_per_s = -1.0, .prefill_tokens_per_s = 0.1}));
  EXPECT_FALSE(swaps_a_byte(false, {.out_bytes_per_s = -1.0, .in_bytes_per_s = 1.0, .prefill_tokens_per_s = 0.1}));
  EXPECT_FALSE(swaps_a_byte(false, {.out_bytes_per_s = 1.0, .in_bytes_per_s = -1.0, .prefill_tokens_per_s = 0.1}));
}

}  // namespace
}  // namespace quire::test
