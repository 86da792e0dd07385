// Tests swapping of layers that keep states, where only one block is transferred, and of encoder outputs, which are kept as a whole.
#include <gtest/gtest.h>

#include <vector>

#include "core/kv/cache_groups.h"
#include "core/schedule/core_driver.h"

namespace quire::test {
namespace {

CoreConfig swap_config_with_states(MambaCacheMode mode) {
  CoreConfig config = sync_config(9);
  config.swap = {.num_swap_slots = 16, .swap_choice = SwapChoice::always};
  MambaSpec states;
  states.block_size = kBlockSize;
  states.shapes = {{1}};
  states.dtypes = {{"float32", 4}};
  states.mode = mode;
  config.kv.groups.push_back({.layer_names = {"state"}, .spec = states, .layer_specs = {}});
  config.mamba_align = mode == MambaCacheMode::align;
  config.cache_block_size = config.mamba_align ? kBlockSize : 0;
  return config;
}

// Applies a result that completes all transfers of the plan.
void apply_done(CoreDriver& d, std::span<const Transfer> transfers) {
  std::vector<TransferCompletion> over;
  for (const Transfer& transfer : transfers) over.push_back({.transfer = transfer.id, .outcome = TransferOutcome::done});
  d.apply({}, {.completions = over});
}

// The other states are not read again. They stay in the cache until their blocks are needed.
TEST(SwapOfStates, MovesOnlyTheLastState) {
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

CoreConfig swap_config_with_audio(SwapChoice choice) {
  CoreConfig config = sync_config(8);
  config.swap = {.num_swap_slots = 16, .swap_choice = choice};
  config.prefix_cache.enable_prefix_caching = false;
  CrossAttentionSpec heard;
  heard.block_size = kBlockSize;
  config.kv.groups.push_back({.layer_names = {"heard"}, .spec = heard, .layer_specs = {}});
  config.encoder = {.max_encoder_tokens = 16, .encoder_cache_size = 64, .is_encoder_decoder = true};
  return config;
}

// Each request has one block for its 4 tokens and two blocks for its audio of 8 positions. Request 2 needs one more block for its fifth
// token, and no block is free.
const StepPlan& preempt_2_with_audio(CoreDriver& d) {
  const std::vector<MultimodalFeature> sounds{{"one", PlaceholderRange(0, 8)}, {"two", PlaceholderRange(0, 8)}};
  const std::vector<TokenId> prompt = CoreDriver::prompt(1, 4);
  for (const std::uint64_t id : {1U, 2U}) {
    NewRequest request = CoreDriver::request(id, prompt, id == 1 ? 3 : 8);
    request.multimodal = std::span(sounds).subspan(id - 1, 1);
    d.add(request);
  }
  d.step();
  return d.plan();
}

TEST(SwapOfEncoderOutputs, MovesAllBlocksAndDoesNotEncodeAgain) {
  CoreDriver d(swap_config_with_audio(SwapChoice::always));
  const StepPlan* plan = &preempt_2_with_audio(d);
  ASSERT_EQ(values(plan->preempted), Ids({2}));
  ASSERT_EQ(plan->transfers.size(), 2U);
  EXPECT_EQ(plan->transfers[0].blocks.size(), 1U);
  EXPECT_EQ(plan->transfers[1].blocks.size(), 2U) << "both blocks move although 4 tokens fill one";
  apply_done(d, plan->transfers);
  d.step();  // request 1 ends
  plan = &d.plan();
  ASSERT_EQ(plan->transfers.size(), 2U);
  EXPECT_EQ(plan->transfers[1].blocks.size(), 2U);
  apply_done(d, plan->transfers);
  plan = &d.plan();
  ASSERT_EQ(scheduled_ids(*plan), Ids({2}));
  EXPECT_EQ(plan->scheduled[0].num_computed_tokens, 4U);
  EXPECT_TRUE(plan->scheduled[0].encoder_inputs.empty());
  EXPECT_EQ(d.core->blocks(RequestId{2}, 1).size(), 2U);
  d.apply();
  for (int i = 0; i < 20 && d.core->has_work(); ++i) d.step();
  EXPECT_TRUE(d.core->all_blocks_free());
}

// The measured cost includes 4 tokens and 8 encoder positions, not only the tokens.
TEST(SwapOfEncoderOutputs, IncludesEncodingInTheMeasuredCost) {
  for (const double tokens_per_s : {11.0, 13.0}) {
    CoreConfig config = swap_config_with_audio(SwapChoice::measured);
    double bytes = 0.0;
    for (const auto& [group, num_blocks] : {std::pair(0U, 1.0), std::pair(1U, 2.0)})
      bytes += num_blocks * static_cast<double>(page_size_bytes(config.kv.groups[group]));
    CoreDriver d(config);
    d.core->set_swap_costs({.out_bytes_per_s = 2.0 * bytes, .in_bytes_per_s = 2.0 * bytes, .prefill_tokens_per_s = tokens_per_s});
    preempt_2_with_audio(d);
    EXPECT_EQ(d.core->counters().num_swapped_out, tokens_per_s < 12.0 ? 1U : 0U);
    d.apply();
  }
}

}  // namespace
}  // namespace quire::test
