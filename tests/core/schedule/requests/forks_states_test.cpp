// Tests forks and sessions with layers that keep states: what is shared, what is copied, and when a child begins from scratch.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/schedule/core_driver.h"
#include "core/schedule/requests/forking.h"

namespace quire::test {
namespace {

CoreConfig with_states(CoreConfig config, MambaCacheMode mode = MambaCacheMode::all, std::uint32_t num_drafts = 0) {
  MambaSpec states;
  states.block_size = kBlockSize;
  states.shapes = {{1}};
  states.dtypes = {{"float32", 4}};
  states.mode = mode;
  states.num_speculative_blocks = num_drafts;
  config.kv.groups.push_back({.layer_names = {"state"}, .spec = states, .layer_specs = {}});
  config.mamba_align = mode == MambaCacheMode::align;
  config.cache_block_size = config.mamba_align ? kBlockSize : 0;
  config.speculation.num_spec_tokens = num_drafts;
  config.fixes.cut_sessions = true;
  return config;
}

void run_all(CoreDriver& d) {
  for (int i = 0; i < 100 && d.core->has_work(); ++i) d.step();
  EXPECT_FALSE(d.core->has_work());
  EXPECT_TRUE(d.core->all_blocks_free());
}

TEST(ForksOfStates, CopyABlockInEveryGroupForTheRequestThatRunsFirst) {
  for (const MambaCacheMode mode : {MambaCacheMode::all, MambaCacheMode::align}) {
    CoreDriver d(with_states(sync_config(), mode));
    d.add(1, 6, 20);
    // If chunks end at block ends, the prompt takes two steps.
    for (int i = mode == MambaCacheMode::align ? 0 : 1; i < 3; ++i) d.step();
    ASSERT_EQ(d.view(1).num_computed_tokens, 7U);
    must_fork(d, 1, 2);
    EXPECT_EQ(d.view(2).num_computed_tokens, 7U);
    EXPECT_EQ(d.core->blocks(RequestId{2}, 1)[1], d.core->blocks(RequestId{1}, 1)[1]) << "the child shares the parent's state";
    EXPECT_EQ(d.core->blocks(RequestId{2}, 1)[0], kNullBlock) << "the child reads no other state";
    const StepPlan& plan = d.plan();
    ASSERT_EQ(plan.copies.size(), 2U);
    for (const BlockCopy& copy : plan.copies) EXPECT_EQ(copy.destination, d.core->blocks(RequestId{1}, copy.group)[1]);
    EXPECT_EQ(d.scheduled(2), 1U);
    d.apply();
    d.core->check_invariants();
    run_all(d);
  }
}

// A session releases its blocks in the plan in which its child copies one. In the same plan another request may get the copied block, so a
// worker copies before it zeroes.
TEST(ForksOfStates, ACopiedBlockMayBeZeroedInTheSamePlan) {
  std::uint32_t num_met = 0;
  for (std::uint32_t num_tokens = 1; num_tokens < 1000; ++num_tokens) {
    CoreConfig config = with_states(sync_config(16), num_tokens % 2 == 0 ? MambaCacheMode::align : MambaCacheMode::all);
    config.fixes.idle_sessions_yield = true;
    CoreDriver d(config);
    const Tokens prompt = CoreDriver::prompt(1, 6);
    NewRequest session = CoreDriver::request(1, prompt, 1);
    session.resumable = true;
    d.add(session);
    for (int i = 0; i < 5; ++i) d.step();
    ASSERT_EQ(d.view(1).status, RequestStatus::waiting_for_input);
    ASSERT_TRUE(fork(d, 1, {.id = RequestId{2}, .arrival_time = 2.0, .max_tokens = 5}).has_value());
    d.add(3, num_tokens / 2 % 20 + 1, 2);
    d.add(4, num_tokens / 40 + 1, 2);
    const StepPlan& plan = d.plan();
    for (const BlockCopy& copy : plan.copies) {
      num_met += std::ranges::count(plan.blocks_to_zero, copy.source) > 0 ? 1 : 0;
      EXPECT_EQ(std::ranges::count(plan.blocks_to_zero, copy.destination), 0) << "zeroing would destroy the copy";
    }
    d.apply();
  }
  EXPECT_GT(num_met, 0U) << "no copied block was zeroed";
}

TEST(ForksOfStates, CopyNothingAtABlockEnd) {
  CoreDriver d(with_states(sync_config()));
  d.add(1, 7, 20);
  d.step();
  d.step();
  ASSERT_EQ(d.view(1).num_computed_tokens, 8U);
  must_fork(d, 1, 2);
  EXPECT_EQ(d.view(2).num_computed_tokens, 8U);
  EXPECT_EQ(d.plan().copies.size(), 0U);
  d.apply();
  run_all(d);
}

// The step in flight overwrites the state of the second last token.
TEST(ForksOfStates, LookUpTheChildWhenAStepIsInFlight) {
  CoreDriver d(with_states(async_config()));
  d.add(1, 10, 20);
  d.plan();
  d.apply();
  d.plan();
  ASSERT_EQ(d.view(1).num_computed_tokens, 11U);
  must_fork(d, 1, 2);
  EXPECT_EQ(d.view(2).num_computed_tokens, 0U);
  d.apply();
  d.plan();
  EXPECT_EQ(d.view(2).num_cached_tokens, 8) << "the child uses the state of the last full block";
  d.apply();
  run_all(d);
}

TEST(ForksOfStates, StartAtABlockEndWhenTheParentIsAhead) {
  CoreDriver d(with_states(sync_config()));
  const Tokens prompt = CoreDriver::prompt(1, 6);
  d.add(CoreDriver::request(1, prompt, 20));
  for (int i = 0; i < 4; ++i) d.step();
  ASSERT_EQ(d.view(1).num_computed_tokens, 9U);
  ASSERT_TRUE(fork(d, 1, {.id = RequestId{2}, .arrival_time = 2.0, .num_tokens = 9}).has_value());
  EXPECT_EQ(d.view(2).num_computed_tokens, 8U) << "the block is full and no request writes to it";
  ASSERT_TRUE(fork(d, 1, {.id = RequestId{3}, .arrival_time = 3.0, .num_tokens = 8}).has_value());
  EXPECT_EQ(d.view(3).num_computed_tokens, 0U) << "the state after seven tokens no longer exists";
  run_all(d);
}

TEST(ForksOfStates, StartAtTheLastAcceptedTokenOfASpeculatingParent) {
  CoreDriver d(with_states(sync_config(), MambaCacheMode::align, 2));
  d.add(1, 6, 20);
  for (int i = 0; i < 3; ++i) d.step();
  must_fork(d, 1, 2);
  EXPECT_EQ(d.view(2).num_computed_tokens, 7U);
  EXPECT_EQ(d.core->blocks(RequestId{2}, 1).size(), 2U) << "the child does not share the parent's spare blocks";
  d.plan();
  EXPECT_EQ(d.core->blocks(RequestId{2}, 1).size(), 4U);
  EXPECT_EQ(d.core->blocks(RequestId{1}, 1).size(), 4U);
  d.apply();
  d.core->check_invariants();
  run_all(d);
}

// The answer ends while a step is in flight. The token of that step is computed and kept, for the child too.
TEST(ForksOfStates, KeepTheSameTokensInAStoppedSessionAndItsChild) {
  CoreDriver d(with_states(async_config()));
  const Tokens prompt = CoreDriver::prompt(1, 6);
  NewRequest session = CoreDriver::request(1, prompt, 20);
  session.resumable = true;
  d.add(session);
  d.plan();
  d.plan();
  d.apply({{1, {kStop}}});
  ASSERT_EQ(d.view(1).status, RequestStatus::waiting_for_input);
  ASSERT_EQ(d.view(1).num_computed_tokens, 7U);
  ASSERT_TRUE(fork(d, 1, {.id = RequestId{2}, .arrival_time = 2.0, .resumable = true, .waits_for_input = true}).has_value());
  EXPECT_EQ(d.view(2).num_computed_tokens, 7U);
  d.apply();
  const Tokens more = {7, 8};
  const SessionInput input{.tokens = more};
  for (const std::uint64_t id : {1U, 2U}) {
    ASSERT_TRUE(d.core->continue_session(RequestId{id}, &input).has_value());
    EXPECT_EQ(d.view(id).tokens.size(), 9U);
    EXPECT_EQ(d.view(id).num_computed_tokens, 7U);
  }
  d.core->check_invariants();
  for (int i = 0; i < 4; ++i) d.step();
  for (const std::uint64_t id : {1U, 2U}) d.core->finish(RequestId{id}, RequestStatus::finished_aborted);
  run_all(d);
}

}  // namespace
}  // namespace quire::test
