// Tests which request is preempted when blocks run out, and what a plan still contains of preempted requests.
#include <gtest/gtest.h>

#include "core/schedule/core_driver.h"

namespace quire::test {
namespace {

TEST(Preemption, Trap20FcfsPreemptsTheNewestRequestAndQueuesItFirst) {
  CoreDriver d(sync_config(5));
  d.add(1, 8, 8);
  d.add(2, 7, 8);
  d.add(3, 3, 2);
  d.step();
  const StepPlan& plan = d.plan();
  EXPECT_EQ(scheduled_ids(plan), Ids({1}));
  EXPECT_EQ(values(plan.preempted), Ids({2}));
  EXPECT_EQ(d.view(2).status, RequestStatus::preempted);
  EXPECT_EQ(d.view(2).num_computed_tokens, 0U);
  EXPECT_EQ(values(d.snapshot().waiting), Ids({2, 3}));
  d.apply();
}

TEST(Preemption, Trap20FcfsIgnoresPriorities) {
  CoreDriver d(sync_config(5));
  d.add_with_priority(1, 8, 9, 5.0, 8);
  d.add_with_priority(2, 7, 0, 2.0, 8);
  d.step();
  const StepPlan& plan = d.plan();
  EXPECT_EQ(scheduled_ids(plan), Ids({1}));
  EXPECT_EQ(values(plan.preempted), Ids({2}));
  d.apply();
}

// The request of priority 5 is scheduled before the request of priority 0 needs a block. It leaves the plan, its tokens return to the
// budget, and the cursor moves back.
TEST(Preemption, Trap20RemovesAVictimScheduledInThisStepFromThePlan) {
  CoreConfig config = priority_config(6);
  config.scheduler.reserve_full_isl = false;
  CoreDriver d(config);
  d.add_with_priority(1, 7, 5, 1.0);
  d.step();
  d.add_with_priority(2, 8, 0, 2.0);
  d.step();  // both run with 2 blocks each; request 1 takes the free block first
  EXPECT_EQ(values(d.snapshot().running), Ids({1, 2}));
  const StepPlan& plan = d.plan();
  EXPECT_EQ(scheduled_ids(plan), Ids({2})) << "request 1 was scheduled first and then preempted";
  EXPECT_EQ(values(plan.preempted), Ids({1}));
  EXPECT_EQ(plan.num_scheduled_tokens, 1U);
  ASSERT_EQ(plan.table_deltas.size(), 1U) << "the plan has no update for the victim";
  EXPECT_EQ(plan.table_deltas[0].id, RequestId{2});
  d.apply();
}

TEST(Preemption, Trap20PreemptsTheFirstOfEqualPriorities) {
  CoreConfig config = priority_config(7);
  config.scheduler.reserve_full_isl = false;
  CoreDriver d(config);
  d.add_with_priority(1, 7, 3, 1.0);
  d.add_with_priority(2, 7, 3, 1.0);
  d.add_with_priority(3, 8, 0, 0.5);
  d.step();
  EXPECT_EQ(values(d.snapshot().running), Ids({3, 1, 2})) << "the request id decides between equal requests";
  const StepPlan& plan = d.plan();
  EXPECT_EQ(values(plan.preempted), Ids({1})) << "request 1 is before request 2 in the batch";
  EXPECT_EQ(scheduled_ids(plan), Ids({3, 2}));
  d.apply();
}

// The victim is before the cursor but was skipped in this step. The loop does not move its cursor back, so it skips one request.
TEST(Preemption, Trap20SkipsARequestAfterPreemptingASkippedVictim) {
  CoreConfig config = priority_config(9);
  config.limits.max_outstanding_plans = 3;
  config.scheduler.reserve_full_isl = false;
  config.scheduler.long_prefill_token_threshold = 8;
  config.scheduler.max_num_batched_tokens = 24;
  CoreDriver d(config);
  d.add_with_priority(1, 8, 9, 0.0);
  d.plan();
  d.add_with_priority(2, 12, 0, 0.0);
  d.add_with_priority(3, 12, 1, 0.0);
  d.add_with_priority(4, 12, 2, 0.0);
  EXPECT_EQ(scheduled_ids(d.plan()), Ids({2, 3, 4})) << "each takes two blocks and none is free now";
  const StepPlan& plan = d.plan();
  EXPECT_EQ(values(plan.preempted), Ids({1})) << "its token is in flight, so the loop skipped it";
  EXPECT_EQ(scheduled_ids(plan), Ids({2, 4}));
}

// With the option, no request can find blocks that a preempted request did not fill.
TEST(Preemption, KeepsUnwrittenBlocksCachedUnlessTheyAreForgotten) {
  for (const bool forget : {false, true}) {
    CoreConfig config = priority_config(9);
    config.scheduler.reserve_full_isl = false;
    config.scheduler.long_prefill_token_threshold = 8;
    config.fixes.forget_unwritten_blocks = forget;
    CoreDriver d(config);
    d.add_with_priority(1, 23, 5, 1.0);
    d.step();
    d.add_with_priority(2, 8, 0, 2.0);
    d.step();
    ASSERT_EQ(d.blocks(1).size(), 4U);
    EXPECT_EQ(scheduled_ids(d.plan()), Ids({2})) << "request 1 took the last two blocks for 7 tokens and was preempted";
    EXPECT_EQ(d.blocks(2).back(), BlockId{8});
    EXPECT_TRUE(d.cached(BlockId{4}));
    EXPECT_EQ(d.cached(BlockId{7}), !forget) << "its tokens 16 to 19 never ran";
    d.apply();
  }
}

TEST(Preemption, Trap21KeepsPlaceholdersAndDropsDrafts) {
  CoreConfig config = async_config(5);
  CoreDriver d(config);
  d.add(1, 8, 8);
  d.add(2, 7, 8);
  d.plan();
  EXPECT_EQ(d.view(2).num_output_placeholders, 1);
  d.plan();
  EXPECT_EQ(d.view(2).status, RequestStatus::preempted);
  EXPECT_EQ(d.view(2).num_output_placeholders, 1) << "its token is still in flight";
  d.apply();
  EXPECT_EQ(d.view(2).num_output_placeholders, 0);
  EXPECT_EQ(d.outputs(2).size(), 1U);
  d.apply();
}

// A reset preempts request 2, whose token in flight must be dropped. Before its result arrives, request 2 runs again and is preempted for a
// block.
TEST(Preemption, DropsTokensOfAResetEvenIfTheRequestIsPreemptedAgain) {
  CoreConfig config = async_config(6);
  config.decisions = DecisionProfile::vllm_0_32;
  config.limits.max_outstanding_plans = 4;
  CoreDriver d(config);
  d.add(1, 7, 4);
  d.add(2, 7, 4);
  d.step();
  EXPECT_EQ(scheduled_ids(d.plan()), Ids({1, 2}));
  ASSERT_TRUE(d.core->reset_prefix_cache(true, false).value());
  EXPECT_EQ(scheduled_ids(d.plan()), Ids({1, 2})) << "each takes two of five blocks";
  EXPECT_EQ(values(d.plan().preempted), Ids({2}));
  for (int i = 0; i < 2; ++i) {
    d.apply();
    EXPECT_EQ(d.outputs(2).size(), 1U) << "only the output of the first step is kept";
  }
  d.apply();
  for (int i = 0; i < 20 && d.core->has_work(); ++i) d.step();
  EXPECT_FALSE(d.core->has_work());
  EXPECT_TRUE(d.core->all_blocks_free());
}

}  // namespace
}  // namespace quire::test
