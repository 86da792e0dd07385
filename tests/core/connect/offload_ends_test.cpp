// Tests how the offloading connector handles preemptions, failed transfers, ends of requests and resets.
#include <gtest/gtest.h>

#include "core/connect/offload_driver.h"

namespace quire::test {
namespace {

TEST(OffloadConnector, CountsStoresOfAPreemptedRequestImmediatelyAndFencesLaterWriters) {
  CoreConfig config = sync_config(7);
  config.scheduler.reserve_full_isl = false;
  OffloadDriver o({.cpu_bytes_to_use = 32}, config);
  o.add(1, 1, 12, 4);
  o.add(2, 2, 12, 4);
  o.plan();
  o.apply();
  const StepPlan& plan = o.plan();
  ASSERT_EQ(values(plan.preempted), (Ids{2}));
  ASSERT_EQ(o.begun.size(), 2U);
  EXPECT_EQ(o.begun[1].request, RequestId{2});
  ASSERT_EQ(plan.fences.size(), 1U) << "request 1 writes to a block of request 2";
  EXPECT_EQ(plan.fences[0], o.begun[1].id);
  EXPECT_EQ(o.connector->ledger().ref_count(o.key(2, 0)), 0);
  EXPECT_EQ(o.connector->ledger().ref_count(o.key(1, 0)), -1);
  o.apply();
  o.run();
}

TEST(OffloadConnector, DoesNotKeepABlockWhenItsStoreFails) {
  OffloadDriver o;
  o.add(1, 1, 10, 3);
  o.run(TransferOutcome::failed);
  EXPECT_EQ(o.num_kept(), 0U);
  EXPECT_EQ(o.connector->counters().num_failed_stores, 3U);
  o.forget_cached();
  o.add(2, 1, 10, 3);
  EXPECT_EQ(o.plan().scheduled.size(), 1U) << "nothing is there to be loaded";
  o.apply();
  o.run();
  EXPECT_EQ(o.num_kept(), 3U);
}

// The block counts as stored from the preemption on. Its store fails afterwards.
TEST(OffloadConnector, RemovesBlocksWhenTheStoreOfAPreemptedRequestFails) {
  CoreConfig config = sync_config(7);
  config.scheduler.reserve_full_isl = false;
  OffloadDriver o({.cpu_bytes_to_use = 32}, config);
  o.add(1, 1, 12, 4);
  o.add(2, 2, 12, 4);
  o.plan();
  o.apply();
  o.plan();
  const OffloadKey key = o.key(2, 0);
  EXPECT_TRUE(o.connector->ledger().contains(key));
  o.apply(TransferOutcome::failed);
  EXPECT_FALSE(o.connector->ledger().contains(key));
  o.run();
}

TEST(OffloadConnector, StoresABlockAgainWhenItsLoadFails) {
  OffloadDriver o({.cpu_bytes_to_use = 32}, recompute_config());
  o.add(1, 1, 14, 1);
  o.run();
  o.forget_cached();
  o.add(2, 1, 14, 1);
  o.plan();
  const OffloadKey first = o.key(2, 0), second = o.key(2, 1);
  const BlockId bad[] = {o.d.blocks(2)[1]};
  o.apply(TransferOutcome::failed, bad);
  EXPECT_TRUE(o.connector->ledger().contains(first));
  EXPECT_FALSE(o.connector->ledger().contains(second));
  EXPECT_EQ(o.connector->counters().num_failed_loads, 1U);
  EXPECT_EQ(o.plan().scheduled[0].num_computed_tokens, 4U) << "the block before it was loaded";
  o.apply();
  o.run();
  EXPECT_TRUE(o.connector->ledger().contains(second));
}

// Two requests load the block. One load fails while the other is in flight.
TEST(OffloadConnector, RemovesABlockThatFailedToLoadWhenItsOtherLoadsEnd) {
  OffloadDriver o({.cpu_bytes_to_use = 32, .join_loads = true}, recompute_config());
  o.add(1, 1, 10, 1);
  o.run();
  o.forget_cached();
  o.add(2, 1, 10, 1);
  o.add(3, 1, 10, 1);
  o.plan();
  const OffloadKey key = o.key(2, 0);
  const TransferId other = o.begun[1].id;
  o.open = {o.begun[0].id};
  o.apply(TransferOutcome::failed);
  EXPECT_EQ(o.connector->ledger().ref_count(key), 1);
  o.add(4, 1, 10, 1);
  o.plan();
  EXPECT_GT(o.d.scheduled(4), 0U) << "a lookup does not find the block";
  EXPECT_TRUE(o.connector->ledger().contains(key));
  o.open.push_back(other);
  o.apply();
  EXPECT_FALSE(o.connector->ledger().contains(key));
  o.run();
}

TEST(OffloadConnector, IgnoresRepeatedCompletionsAndCompletionsOfUnknownTransfers) {
  OffloadDriver o;
  o.add(1, 1, 10, 4);
  o.plan();
  o.apply();
  o.plan();
  const TransferCompletion end[] = {{.transfer = o.begun[0].id}};
  const TransferCompletion unknown[] = {{.transfer = TransferId{77}}};
  EXPECT_EQ(o.d.core->apply({.step = StepId{1}, .completions = unknown}).error().field, "completions");
  o.apply();
  const std::size_t num_tracked = o.connector->num_tracked();
  o.connector->completed(end[0]);
  o.connector->completed({.transfer = o.begun[0].id, .outcome = TransferOutcome::failed});
  o.connector->completed(unknown[0]);
  o.connector->sent(RequestId{99});
  EXPECT_EQ(o.connector->num_tracked(), num_tracked);
  EXPECT_EQ(o.num_kept(), 2U);
  o.run();
}

TEST(OffloadConnector, KeepsBlocksOfAnAbortedRequestUntilItsTransfersEnd) {
  OffloadDriver o;
  o.add(1, 1, 10, 4);
  o.plan();
  o.apply();
  o.d.core->finish(RequestId{1}, RequestStatus::finished_aborted);
  EXPECT_FALSE(o.d.core->all_blocks_free()) << "a store begins with the next plan";
  o.plan();
  o.apply_without_ends();
  EXPECT_FALSE(o.d.core->all_blocks_free()) << "the store is in flight";
  o.run();
  EXPECT_EQ(o.num_kept(), 2U);
  o.forget_cached();
  o.add(2, 1, 10, 4);
  o.plan();
  EXPECT_EQ(o.connector->ledger().ref_count(o.key(2, 0)), 1);
  const OffloadKey key = o.key(2, 0);
  o.d.core->finish(RequestId{2}, RequestStatus::finished_aborted);
  o.apply_without_ends();
  EXPECT_FALSE(o.d.core->all_blocks_free()) << "a load writes to the blocks";
  o.run();
  EXPECT_EQ(o.connector->ledger().ref_count(key), 0);
}

TEST(OffloadConnector, DropsStoredBlocksAndBlocksInTransferOnReset) {
  OffloadDriver o;
  o.add(1, 1, 10, 1);
  o.run();
  o.forget_cached();
  o.add(2, 1, 10, 1);
  o.add(3, 3, 10, 4);
  o.plan();
  o.apply_without_ends();
  EXPECT_TRUE(o.d.core->reset_connector_cache());
  EXPECT_EQ(o.num_kept(), 4U) << "two blocks are being loaded and two are being stored";
  const OffloadKey loaded = o.key(2, 0), stored = o.key(3, 0);
  o.add(4, 1, 10, 1);
  o.plan();
  EXPECT_GT(o.d.scheduled(4), 0U) << "a lookup does not find blocks that are still in transfer";
  o.apply();
  EXPECT_FALSE(o.connector->ledger().contains(loaded));
  o.run();
  EXPECT_FALSE(o.connector->ledger().contains(stored));
}

}  // namespace
}  // namespace quire::test
