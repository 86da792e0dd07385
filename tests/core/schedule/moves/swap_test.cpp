// Tests preemption by swapping, rule by rule: which blocks move and when, which requests wait for them, and the results.
#include "core/schedule/moves/swap.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/schedule/core_driver.h"
#include "quire/base/events.h"
#include "support/scripted_connector.h"

namespace quire::test {
namespace {

CoreConfig swap_config(std::uint32_t num_blocks, std::uint32_t num_places = 16, SwapChoice choice = SwapChoice::always) {
  CoreConfig config = sync_config(num_blocks);
  config.swap = {.num_swap_slots = num_places, .swap_choice = choice};
  return config;
}

// Request 1 has 8 tokens in 2 blocks, request 2 has 7 in 2, and there is no fifth block. The returned plan preempts request 2, which then
// uses 2 slots.
const StepPlan& preempt_2(CoreDriver& d, std::uint32_t max_tokens = 8) {
  d.add(1, 8, max_tokens);
  d.add(2, 7, max_tokens);
  d.step();
  return d.plan();
}

StepResult ends(std::vector<TransferCompletion>& memory, std::vector<std::uint64_t> transfers,
                TransferOutcome outcome = TransferOutcome::done) {
  for (const std::uint64_t id : transfers) memory.push_back({.transfer = TransferId{id}, .outcome = outcome});
  return {.completions = memory};
}

void apply_with(CoreDriver& d, const std::vector<std::uint64_t>& over, TransferOutcome outcome = TransferOutcome::done) {
  std::vector<TransferCompletion> memory;
  d.apply({}, ends(memory, over, outcome));
}

TEST(Swap, StoresTheVictimsBlocksAndFencesWritesToThem) {
  EventLog events{EventKind::swapped_out, EventKind::swapped_in, EventKind::swap_declined, EventKind::swap_lost};
  CoreDriver d(swap_config(5), {.events = &events});
  d.add(1, 8, 8);
  d.add(2, 7, 8);
  d.step();
  const std::vector<BlockId> own = d.blocks(2);
  const StepPlan& plan = d.plan();
  EXPECT_EQ(values(plan.preempted), Ids({2}));
  ASSERT_EQ(plan.transfers.size(), 1U);
  const Transfer& store = plan.transfers[0];
  EXPECT_EQ(store.request, RequestId{2});
  EXPECT_EQ(store.direction, TransferDirection::store);
  EXPECT_EQ(store.tier, kSwapTier);
  EXPECT_EQ(store.need, TransferNeed::nothing);
  EXPECT_TRUE(std::ranges::equal(store.blocks, own)) << "both blocks move although the second is not full";
  EXPECT_EQ(std::vector(store.places.begin(), store.places.end()), (std::vector<std::uint64_t>{0, 1}));
  EXPECT_EQ(std::vector(plan.fences.begin(), plan.fences.end()), (std::vector<TransferId>{store.id}))
      << "request 1 writes to one of the blocks";
  EXPECT_EQ(d.view(2).status, RequestStatus::preempted);
  EXPECT_EQ(d.view(2).num_computed_tokens, 7U);
  EXPECT_EQ(d.core->counters().num_swapped_out, 1U);
  EXPECT_EQ(d.core->counters().num_swapped_out_blocks, 2U);
  EXPECT_EQ(d.core->counters().num_used_swap_slots, 2U);
  EXPECT_EQ(d.core->counters().num_free_blocks, 1U);
  EXPECT_EQ(d.core->counters().num_awaiting_transfers, 1U);
  ASSERT_EQ(events.all.size(), 1U);
  EXPECT_EQ(events.all[0].what, EventKind::swapped_out);
  EXPECT_EQ(events.all[0].owner, RequestId{2});
  EXPECT_EQ(events.all[0].amount, 2U);
  EXPECT_EQ(events.all[0].cause, EventCause::lack_of_blocks);
  d.apply();
}

TEST(Swap, ContinuesARequestWhenItsBlocksAreLoaded) {
  EventLog events{EventKind::swapped_out, EventKind::swapped_in, EventKind::swap_declined, EventKind::swap_lost};
  CoreDriver d(swap_config(5), {.events = &events});
  preempt_2(d, 3);
  apply_with(d, {0});
  EXPECT_EQ(d.core->counters().num_awaiting_transfers, 0U);
  d.add(3, 3, 2);
  EXPECT_EQ(scheduled_ids(d.plan()), Ids({1})) << "request 3 has room but is after request 2";
  d.apply();  // request 1 ends
  const StepPlan& plan = d.plan();
  ASSERT_EQ(plan.transfers.size(), 1U);
  EXPECT_EQ(plan.transfers[0].direction, TransferDirection::load);
  EXPECT_EQ(plan.transfers[0].tier, kSwapTier);
  EXPECT_EQ(std::vector(plan.transfers[0].places.begin(), plan.transfers[0].places.end()), (std::vector<std::uint64_t>{0, 1}));
  EXPECT_TRUE(std::ranges::equal(plan.transfers[0].blocks, d.blocks(2)));
  EXPECT_EQ(scheduled_ids(plan), Ids({3})) << "request 2 waits for its blocks";
  EXPECT_EQ(d.view(2).status, RequestStatus::waiting_for_remote_kv);
  d.apply();
  EXPECT_EQ(d.plan().scheduled.size(), 1U) << "the load is still open";
  EXPECT_EQ(d.core->counters().num_awaiting_transfers, 1U);
  apply_with(d, {1});
  EXPECT_EQ(d.core->counters().num_used_swap_slots, 0U);
  const StepPlan& last = d.plan();
  ASSERT_EQ(scheduled_ids(last), Ids({2}));
  EXPECT_EQ(last.scheduled[0].num_computed_tokens, 7U);
  EXPECT_EQ(last.scheduled[0].num_tokens, 1U);
  EXPECT_EQ(last.scheduled[0].kind, ScheduledKind::resumed);
  EXPECT_TRUE(d.cached(d.blocks(2)[0])) << "the block is cached by its hash again";
  d.apply();
  EXPECT_EQ(d.core->counters().num_swapped_in, 1U);
  EXPECT_EQ(d.core->counters().num_swapped_in_blocks, 2U);
  EXPECT_EQ(d.core->counters().num_swapped_in_tokens, 7U);
  ASSERT_EQ(events.all.size(), 2U);
  EXPECT_EQ(events.all[1].what, EventKind::swapped_in);
  EXPECT_EQ(events.all[1].amount, 2U);
  EXPECT_EQ(events.all[1].total, 7U);
}

TEST(Swap, KeepsATokenInFlight) {
  CoreConfig config = async_config(5);
  config.swap = swap_config(5).swap;
  CoreDriver d(config);
  d.add(1, 8, 3);
  d.add(2, 7, 8);
  d.plan();
  EXPECT_EQ(values(d.plan().preempted), Ids({2}));
  EXPECT_EQ(d.view(2).num_output_placeholders, 1);
  EXPECT_EQ(d.view(2).num_computed_tokens, 7U) << "the step in flight writes them and finishes before the store begins";
  d.apply({{2, {77}}});
  EXPECT_EQ(d.outputs(2), (std::vector<TokenId>{77}));
  EXPECT_EQ(d.view(2).num_output_placeholders, 0);
  d.plan();
  apply_with(d, {0});
  for (int step = 0; d.known(1) || d.view(2).status != RequestStatus::running; ++step) {
    ASSERT_LT(step, 12);
    const bool loads = !d.plan().transfers.empty();
    if (loads)
      apply_with(d, {1});
    else
      d.apply();
  }
  EXPECT_EQ(d.view(2).tokens[7], 77);
  EXPECT_EQ(d.core->counters().num_swapped_in_tokens, 7U);
}

// Request 2 has filled two blocks, and two are free.
TEST(Swap, SwapsInOnlyWhenTheNextTokenAlsoHasABlock) {
  CoreConfig config = swap_config(6);
  config.scheduler.reserve_full_isl = false;
  CoreDriver d(config);
  d.add(1, 8, 4);
  d.add(2, 8, 4);
  d.step();
  d.plan();
  ASSERT_EQ(d.view(2).num_computed_tokens, 8U);
  ASSERT_EQ(d.view(2).status, RequestStatus::preempted);
  apply_with(d, {0});
  for (int i = 0; i < 2; ++i) {
    d.plan();
    EXPECT_EQ(d.snapshot().free_blocks.size(), 2U);
    EXPECT_EQ(d.view(2).status, RequestStatus::preempted);
    d.apply();
  }
  ASSERT_FALSE(d.known(1));
  d.plan();
  EXPECT_EQ(d.view(2).status, RequestStatus::waiting_for_remote_kv);
}

TEST(Swap, RecomputesWhenThereAreTooFewSlots) {
  EventLog events{EventKind::swapped_out, EventKind::swapped_in, EventKind::swap_declined, EventKind::swap_lost};
  CoreDriver d(swap_config(5, 1), {.events = &events});
  const StepPlan& plan = preempt_2(d);
  EXPECT_TRUE(plan.transfers.empty());
  EXPECT_TRUE(plan.fences.empty());
  EXPECT_EQ(d.view(2).num_computed_tokens, 0U);
  EXPECT_TRUE(d.blocks(2).empty());
  EXPECT_EQ(d.core->counters().num_swaps_no_slot, 1U);
  EXPECT_EQ(d.core->counters().num_swapped_out, 0U);
  ASSERT_EQ(events.all.size(), 1U);
  EXPECT_EQ(events.all[0].what, EventKind::swap_declined);
  EXPECT_EQ(events.all[0].cause, EventCause::no_place);
  d.apply();
}

TEST(Swap, RecomputesWhenNoTransferCanBegin) {
  CoreConfig config = swap_config(7);
  config.limits.max_open_transfers = 1;
  CoreDriver d(config);
  d.add(1, 8, 8);
  d.add(2, 7, 8);
  d.add(3, 7, 8);
  d.step();
  EXPECT_EQ(values(d.plan().preempted), Ids({3}));
  d.apply();
  for (int i = 0; i < 5 && d.core->counters().num_preemptions == 1; ++i) d.step();
  EXPECT_EQ(d.core->counters().num_preemptions, 2U);
  EXPECT_EQ(d.core->counters().num_swapped_out, 1U) << "the first store is still open";
  EXPECT_EQ(d.core->counters().num_swaps_no_slot, 1U);
}

TEST(Swap, RecomputesAfterAFailedStoreOrLoad) {
  for (const bool load_fails : {false, true}) {
    EventLog events{EventKind::swapped_out, EventKind::swapped_in, EventKind::swap_declined, EventKind::swap_lost};
    CoreDriver d(swap_config(5), {.events = &events});
    preempt_2(d, 3);
    apply_with(d, {0}, load_fails ? TransferOutcome::done : TransferOutcome::failed);
    EXPECT_EQ(d.view(2).num_computed_tokens, load_fails ? 7U : 0U);
    d.step();
    d.plan();
    if (load_fails)
      apply_with(d, {1}, TransferOutcome::failed);
    else
      d.apply();
    EXPECT_EQ(d.core->counters().num_swaps_lost, 1U);
    EXPECT_EQ(d.core->counters().num_used_swap_slots, 0U);
    EXPECT_EQ(events.all.back().what, EventKind::swap_lost);
    EXPECT_EQ(events.all.back().cause, EventCause::failed_transfer);
    if (load_fails) {
      const StepPlan& plan = d.plan();
      ASSERT_EQ(scheduled_ids(plan), Ids({2})) << "the request does not end with an error, although that is the policy for connectors";
      EXPECT_EQ(plan.scheduled[0].num_tokens + plan.scheduled[0].num_computed_tokens, 8U);
      d.apply();
    }
  }
}

// Both requests hold the first two blocks. Only the other block of request 2 is swapped out, and the shared blocks keep both references.
TEST(Swap, KeepsBlocksThatOtherRequestsHold) {
  CoreConfig config = swap_config(7);
  CoreDriver d(config);
  Tokens first = CoreDriver::prompt(1, 12), second = first;
  second.back() = 5;
  d.add(CoreDriver::request(1, first, 10));
  d.step();
  d.add(CoreDriver::request(2, second, 10));
  d.step();
  ASSERT_EQ(d.blocks(1)[1], d.blocks(2)[1]);
  const std::vector<BlockId> before = d.blocks(2);
  const StepPlan* plan = &d.plan();
  for (int i = 0; i < 8 && plan->preempted.empty(); ++i) {
    d.apply();
    plan = &d.plan();
  }
  ASSERT_EQ(values(plan->preempted), Ids({2}));
  ASSERT_EQ(plan->transfers.size(), 1U);
  EXPECT_EQ(plan->transfers[0].blocks[0], before[2]);
  EXPECT_EQ(d.core->ref_count(before[0]), 2U);
  EXPECT_EQ(d.core->ref_count(before[1]), 2U);
  EXPECT_EQ(d.blocks(2)[2], kNullBlock);
  d.apply();
  d.core->finish(RequestId{2}, RequestStatus::finished_aborted);
  EXPECT_EQ(d.core->ref_count(before[0]), 1U);
}

// Request 1 needs two blocks. Requests 3 and 2 are preempted for it, and both hold one shared block that their preemption does not free.
TEST(Swap, DropsASwapOfTheSameStepWhenBlocksAreMissing) {
  CoreConfig config = swap_config(5);
  config.scheduler.long_prefill_token_threshold = 8;
  CoreDriver d(config);
  const Tokens prompts[] = {CoreDriver::prompt(1, 16), CoreDriver::prompt(2, 4), CoreDriver::prompt(2, 6)};
  for (std::uint64_t id = 1; id <= 3; ++id) d.add(CoreDriver::request(id, prompts[id - 1], id == 1 ? 1 : 4));
  d.step();
  ASSERT_EQ(d.core->counters().num_free_blocks, 0U);
  ASSERT_EQ(d.blocks(2), std::vector(1, d.blocks(3).at(0)));
  const StepPlan& plan = d.plan();
  EXPECT_EQ(values(plan.preempted), Ids({3, 2}));
  EXPECT_EQ(scheduled_ids(plan), Ids({1}));
  EXPECT_TRUE(plan.transfers.empty()) << "the plan does not begin the store";
  EXPECT_EQ(d.core->counters().num_swapped_out, 2U);
  EXPECT_EQ(d.core->counters().num_swaps_lost, 2U);
  EXPECT_EQ(d.core->counters().num_used_swap_slots, 0U);
  d.apply();
  for (int steps = 0; steps < 20 && d.core->has_work(); ++steps) d.step();
  EXPECT_FALSE(d.core->has_work());
  EXPECT_TRUE(d.core->all_blocks_free());
}

// A running request has a private block, but request 2 does not run: its image has no room next to the other image. Its computed tokens are
// the prefix of request 3.
TEST(Swap, ResumesWithoutALoadWhenAllBlocksAreShared) {
  CoreConfig config = priority_config(7);
  config.swap = swap_config(7).swap;
  config.scheduler.long_prefill_token_threshold = 4;
  config.encoder.max_encoder_tokens = config.encoder.encoder_cache_size = 16;
  CoreDriver d(config);
  const std::vector<MultimodalFeature> large{{"a", PlaceholderRange(0, 16U)}}, small{{"b", PlaceholderRange(8, 4U)}};
  const Tokens prompt = CoreDriver::prompt(1, 16), shared = CoreDriver::prompt(2, 12);
  NewRequest first = CoreDriver::request(1, prompt, 1), second = CoreDriver::request(2, shared, 1);
  first.multimodal = large;
  second.multimodal = small;
  second.priority = 9;
  d.add(first);
  d.add(second);
  d.step();
  d.step();
  Tokens other = shared;
  other.back() = 5;
  d.add(CoreDriver::request(3, other, 2));
  d.step();
  ASSERT_EQ(d.blocks(2).size(), 2U);
  for (const BlockId block : d.blocks(2)) ASSERT_EQ(d.core->ref_count(block), 2U);
  const auto moving = [&] {
    std::vector<std::uint64_t> ids;
    for (const Transfer& transfer : d.plan().transfers) ids.push_back(transfer.id.value);
    return ids;
  };
  std::vector<std::uint64_t> over = moving();
  EXPECT_EQ(d.core->counters().num_swapped_out, 2U);
  EXPECT_EQ(d.core->counters().num_swapped_out_blocks, 1U) << "request 3 has one; request 2 has no private block";
  for (int step = 0; d.core->counters().num_unfinished > 0; ++step) {
    ASSERT_LT(step, 20) << "request 2 waits forever";
    apply_with(d, over);
    over = moving();
  }
  apply_with(d, over);
  EXPECT_EQ(d.core->counters().num_swapped_in, 2U);
  EXPECT_EQ(d.core->counters().num_swapped_in_tokens, 8U + 12U);
  EXPECT_EQ(d.core->counters().num_swaps_lost, 0U);
  EXPECT_TRUE(d.core->all_blocks_free());
}

TEST(Swap, FreesSlotsOfAFinishedRequestWhenItsTransfersAreComplete) {
  for (const int stage : {0, 1, 2}) {  // storing, stored, loading
    CoreDriver d(swap_config(5));
    preempt_2(d, 3);
    if (stage == 0)
      d.apply();
    else
      apply_with(d, {0});
    if (stage == 2) {
      d.step();
      ASSERT_EQ(d.plan().transfers.size(), 1U);
      d.apply();
    }
    d.core->finish(RequestId{2}, RequestStatus::finished_aborted);
    d.core->check_invariants();
    EXPECT_FALSE(d.known(2)) << "the request is removed immediately";
    EXPECT_EQ(d.core->counters().num_used_swap_slots, stage == 1 ? 0U : 2U) << stage;
    EXPECT_EQ(d.core->counters().num_awaiting_transfers, stage == 1 ? 0U : 1U);
    if (stage == 2) EXPECT_FALSE(d.core->all_blocks_free()) << "the load still fills the blocks";
    d.core->finish(RequestId{1}, RequestStatus::finished_aborted);
    d.plan();
    if (stage == 1)
      d.apply();
    else
      apply_with(d, {stage == 0 ? 0U : 1U});
    EXPECT_EQ(d.core->counters().num_used_swap_slots, 0U);
    EXPECT_TRUE(d.core->all_blocks_free());
  }
}

TEST(Swap, DropsSwappedBlocksWhenTheCacheIsReset) {
  CoreDriver d(swap_config(5));
  preempt_2(d);
  apply_with(d, {0});
  EXPECT_FALSE(d.core->reset_prefix_cache().value()) << "a request still needs its computed tokens";
  EXPECT_TRUE(d.core->reset_prefix_cache(true).value());
  EXPECT_EQ(d.core->counters().num_used_swap_slots, 0U);
  EXPECT_EQ(d.view(2).num_computed_tokens, 0U);
  EXPECT_EQ(d.core->counters().num_swaps_lost, 1U);
  EXPECT_EQ(d.core->counters().num_swapped_out, 1U) << "request 1 was preempted, not swapped";
  d.step();
}

// The failure reported during the loads concerns blocks that the request no longer holds. Its next load must not count as failed.
TEST(Swap, ForgetsAFailedLoadWhenTheCacheIsReset) {
  CoreConfig config = swap_config(5);
  config.kv_load_failure = KvLoadFailurePolicy::recompute;
  CoreDriver d(config);
  preempt_2(d, 3);
  apply_with(d, {0});
  d.step();
  d.plan();
  ASSERT_EQ(d.view(2).status, RequestStatus::waiting_for_remote_kv);
  const std::vector<BlockId> bad = {d.blocks(2)[0]};
  d.apply({}, {.has_connector_output = true, .invalid_blocks = bad});
  CoreSnapshot now;
  d.core->snapshot(now);
  ASSERT_EQ(values(now.failed_receiving), Ids({2}));
  EXPECT_FALSE(d.core->reset_prefix_cache(true).has_value()) << "its loads still write to blocks";
  d.core->snapshot(now);
  EXPECT_EQ(d.view(2).status, RequestStatus::preempted);
  EXPECT_EQ(values(now.failed_receiving), Ids());
}

// Compares moving 2 blocks of 128 * 4 bytes in each direction with computing 7 tokens.
TEST(Swap, ComparesMeasuredCosts) {
  const double bytes = 2 * 4 * 2 * 8 * 16 * 2;  // blocks, tokens, keys and values, heads, head size, bytes per element
  struct Case {
    SwapCosts costs;
    bool swaps;
  };
  const std::vector<Case> cases = {
      {{}, false},
      {{.out_bytes_per_s = bytes, .in_bytes_per_s = bytes}, false},
      {{.out_bytes_per_s = bytes, .in_bytes_per_s = bytes, .prefill_tokens_per_s = 3.4}, true},   // 2 s against 2.06 s
      {{.out_bytes_per_s = bytes, .in_bytes_per_s = bytes, .prefill_tokens_per_s = 3.6}, false},  // against 1.94 s
      {{.out_bytes_per_s = bytes / 3, .in_bytes_per_s = bytes, .prefill_tokens_per_s = 3.4}, false},
      {{.out_bytes_per_s = bytes, .in_bytes_per_s = bytes / 3, .prefill_tokens_per_s = 3.4}, false},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    CoreConfig config = swap_config(5, 16, SwapChoice::measured);
    FullAttentionSpec& spec = std::get<FullAttentionSpec>(config.kv.groups[0].spec);
    spec.num_kv_heads = 8;
    spec.head_size = 16;
    spec.dtype = {"bfloat16", 2};
    CoreDriver d(config);
    d.core->set_swap_costs(cases[i].costs);
    preempt_2(d);
    EXPECT_EQ(d.core->counters().num_swapped_out, cases[i].swaps ? 1U : 0U) << i;
    EXPECT_EQ(d.core->counters().num_swaps_no_gain, cases[i].swaps ? 0U : 1U) << i;
    d.apply();
  }
}

TEST(Swap, RefusesInvalidOptions) {
  EXPECT_EQ(swap_config(5, 0).validate().error().field, "swap.num_swap_slots");
  EXPECT_EQ(swap_config(5, (1U << 24U) + 1).validate().error().field, "swap.num_swap_slots");
  EXPECT_TRUE(swap_config(5, 0, SwapChoice::off).validate().has_value());
}

}  // namespace
}  // namespace quire::test
