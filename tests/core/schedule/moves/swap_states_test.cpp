// Swap where layers keep states: of those one block is worth a transfer.
#include <gtest/gtest.h>

#include <vector>

#include "core/schedule/core_driver.h"

namespace quire {
namespace {

using test::CoreDriver;
using test::Ids;
using test::scheduled_ids;

CoreConfig swap_config_with_states(MambaCacheMode mode) {
  CoreConfig config = test::sync_config(9);
  config.swap = {.num_swap_places = 16, .swap_choice = SwapChoice::always};
  MambaSpec states;
  states.block_size = test::kBlockSize;
  states.shapes = {{1}};
  states.dtypes = {{"float32", 4}};
  states.mode = mode;
  config.kv.groups.push_back({.layer_names = {"state"}, .spec = states, .layer_specs = {}});
  config.mamba_align = mode == MambaCacheMode::align;
  config.cache_block_size = config.mamba_align ? test::kBlockSize : 0;
  return config;
}

// All transfers of the plan are done by the time of its result.
void apply_done(CoreDriver& d, std::span<const Transfer> transfers) {
  std::vector<TransferCompletion> over;
  for (const Transfer& transfer : transfers) over.push_back({.transfer = transfer.id, .outcome = TransferOutcome::done});
  d.apply({}, {.completions = over});
}

// The others are not read any more: they stay in the cache for as long as nobody needs the blocks.
TEST(SwapOfStates, TheOneThatItGoesOnFromMoves) {
  for (const MambaCacheMode mode : {MambaCacheMode::all, MambaCacheMode::align}) {
    CoreDriver d(swap_config_with_states(mode));
    d.add(1, 8, 12);
    d.add(2, 7, 12);
    const StepPlan* plan = &d.plan();
    for (int i = 0; i < 20 && plan->preempted.empty(); ++i) {
      d.apply();
      plan = &d.plan();
    }
    ASSERT_EQ(plan->transfers.size(), 2U) << "a store in each group";
    const std::uint64_t victim = plan->preempted[0].value;
    const std::uint32_t num_computed = d.view(victim).num_computed_tokens;
    EXPECT_EQ(plan->transfers[0].blocks.size(), (num_computed + 3) / 4);
    EXPECT_EQ(plan->transfers[1].blocks.size(), 1U);
    apply_done(d, plan->transfers);
    d.core->finish(RequestId{3 - victim}, RequestStatus::finished_aborted);
    plan = &d.plan();
    ASSERT_EQ(plan->transfers.size(), 2U) << "a load in each group";
    EXPECT_EQ(plan->transfers[1].blocks.size(), 1U);
    const BlockId state = plan->transfers[1].blocks[0];
    apply_done(d, plan->transfers);
    plan = &d.plan();
    ASSERT_EQ(scheduled_ids(*plan), Ids({victim}));
    EXPECT_EQ(plan->scheduled[0].num_computed_tokens, num_computed);
    EXPECT_EQ(d.core->blocks(RequestId{victim}, 1)[(num_computed - 1) / 4], state);
    d.apply();
    for (int i = 0; i < 40 && d.core->has_work(); ++i) d.step();
    EXPECT_TRUE(d.core->all_blocks_free());
  }
}

}  // namespace
}  // namespace quire
