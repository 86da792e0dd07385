// Tests what happens to shared blocks when blocks run out or the cache is reset.
#include <gtest/gtest.h>

#include "core/schedule/core_driver.h"
#include "core/schedule/requests/forking.h"

namespace quire::test {
namespace {

// Request 1 needs a block. The waiting child releases its shared blocks before any request is preempted, and is recomputed.
TEST(Forks, ReleaseSharedBlocksBeforePreemptingARunningRequest) {
  CoreConfig config = sync_config(6);
  config.scheduler.max_num_seqs = 1;
  CoreDriver d(config);
  d.add(1, 6, 14);
  d.step();
  must_fork(d, 1, 2);
  while (d.known(1)) {
    EXPECT_TRUE(d.plan().preempted.empty());
    d.apply();
  }
  EXPECT_EQ(d.core->counters().num_copied_blocks, 1U);
  while (d.core->has_work()) d.step();
  EXPECT_TRUE(d.core->all_blocks_free());
}

// Waiting children hold all blocks. The first child takes the blocks that the others release.
TEST(Forks, ReleaseSharedBlocksWhenWaitingChildrenHoldAllBlocks) {
  CoreConfig config = sync_config(7);
  CoreDriver d(config);
  d.add(1, 14, 8);
  d.step();
  must_fork(d, 1, 2);
  ASSERT_TRUE(fork(d, 1, {.id = RequestId{3}, .arrival_time = 3.0, .max_tokens = 8}).has_value());
  d.core->finish(RequestId{1}, RequestStatus::finished_aborted);
  for (int i = 0; i < 40 && d.core->has_work(); ++i) d.step();
  EXPECT_FALSE(d.core->has_work());
  EXPECT_TRUE(d.core->all_blocks_free());
}

TEST(Forks, RecomputeAPreemptedChild) {
  CoreConfig config = sync_config(7);
  config.scheduler.reserve_full_isl = false;
  config.prefix_cache.enable_prefix_caching = false;
  CoreDriver d(config);
  d.add(1, 6, 12);
  d.step();
  must_fork(d, 1, 2);
  for (int i = 0; i < 60 && d.core->has_work(); ++i) d.step();
  EXPECT_FALSE(d.core->has_work());
  EXPECT_GT(d.core->counters().num_preemptions, 0U);
  EXPECT_TRUE(d.core->all_blocks_free());
}

// Request 1 is scheduled with a copy. Request 3 needs more blocks even after request 2 has released its shared blocks, so request 1 is
// preempted and nothing is copied for it.
TEST(Forks, RemoveTheCopyOfAPreemptedRequestFromThePlan) {
  CoreConfig config = priority_config(6);
  config.scheduler.reserve_full_isl = false;
  config.scheduler.long_prefill_token_threshold = 8;
  CoreDriver d(config);
  d.add_with_priority(1, 6, 5, 1.0, 8);
  d.step();
  d.add_with_priority(3, 16, 0, 2.0, 2);
  d.step();
  must_fork(d, 1, 2);
  const StepPlan& plan = d.plan();
  EXPECT_EQ(scheduled_ids(plan), Ids({3}));
  EXPECT_EQ(values(plan.preempted), Ids({1}));
  EXPECT_TRUE(plan.copies.empty());
  EXPECT_TRUE(d.blocks(2).empty());
  d.apply();
  EXPECT_EQ(d.core->counters().num_copied_blocks, 0U);
}

TEST(Forks, ReleaseSharedBlocksWhenTheCacheIsReset) {
  CoreDriver d(sync_config());
  d.add(1, 6, 20);
  d.step();
  must_fork(d, 1, 2);
  EXPECT_FALSE(*d.core->reset_prefix_cache());
  EXPECT_TRUE(*d.core->reset_prefix_cache(true));
  EXPECT_EQ(d.view(2).num_computed_tokens, 0U);
  d.step();
  EXPECT_EQ(d.outputs(2).size(), 2U);
}

}  // namespace
}  // namespace quire::test
