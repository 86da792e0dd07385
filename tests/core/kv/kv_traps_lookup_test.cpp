// Tests behaviors of vLLM V1 (v0.19.0) that a reimplementation misses most easily, numbered as in the list of such behaviors. This file
// tests prefix lookups. Blocks have four tokens unless stated otherwise.
#include <gtest/gtest.h>

#include "core/kv/kv_traps.h"

namespace quire::test {
namespace {

using Ids = std::vector<std::uint32_t>;

TEST_F(KvTraps, Trap01AHitLeavesOneTokenAndEveryLookupCounts) {
  make(20, {full()});
  leave_cached(letters(8));
  EXPECT_EQ(hit_of(letters(8)), 4U) << "one token must run and hits are whole blocks";
  EXPECT_EQ(hit_of(letters(9)), 8U);
  TestRequest resumed(letters(9), 4);
  resumed.preempted = true;
  (void)manager->find_prefix(resumed.view());
  TestRequest skipping(letters(9), 4);
  skipping.skip = true;
  EXPECT_EQ(manager->find_prefix(skipping.view()).num_tokens, 0U);
  const PrefixCacheStats stats = manager->take_prefix_cache_stats();
  EXPECT_EQ(stats.requests, 2U);
  EXPECT_EQ(stats.queries, 17U);
  EXPECT_EQ(stats.hits, 12U);
  EXPECT_EQ(stats.preempted_requests, 1U);
  EXPECT_EQ(stats.preempted_queries, 9U);
  EXPECT_EQ(stats.preempted_hits, 8U);
  EXPECT_EQ(manager->take_prefix_cache_stats().requests, 0U);
}

TEST_F(KvTraps, Trap02EagleDropsABlockOfFullAttentionAndNeedsOneMoreOfAWindow) {
  make(20, {full()}, true);
  leave_cached(letters(12));
  EXPECT_EQ(hit_of(letters(13)), 8U);
  EXPECT_EQ(hit_of(letters(5)), 0U);

  make(20, {window(5)}, true);  // one block covers the window; EAGLE needs two
  TestRequest request(letters(13), 4);
  ASSERT_EQ(manager->allocate_slots(request.view(), {.num_new_tokens = 12}), 0U);
  EXPECT_EQ(hit_of(letters(13)), 8U);
  const BlockId middle = request.blocks.blocks(0)[1];
  manager->evict_blocks(std::span(&middle, 1));
  EXPECT_EQ(hit_of(letters(13)), 0U) << "EAGLE drops the single first block";

  make(20, {mamba(MambaCacheMode::all)}, true);
  leave_cached(letters(12));
  EXPECT_EQ(hit_of(letters(13)), 12U) << "states ignore EAGLE";
}

TEST_F(KvTraps, Trap02EagleTrimsFullAttentionToTheAlignment) {
  make(40, {full(), mamba(MambaCacheMode::all, 0, 8)}, true);
  leave_cached(letters(24));
  EXPECT_EQ(hit_of(letters(25)), 16U) << "24 minus a block of four, rounded down to a multiple of eight";
}

TEST_F(KvTraps, Trap03OneFullAndOneOtherKindAreSearchedOnce) {
  make(40, {window(5), full()}, true);
  leave_cached(letters(24));
  // Full attention finds 24 tokens and drops to 20. The window finds 20 and drops to 16. No second pass drops a block again.
  EXPECT_EQ(hit_of(letters(25)), 16U);
}

TEST_F(KvTraps, Trap03ThreeKindsAreSearchedUntilTheHitStopsShrinking) {
  make(60, {full(), window(5), window(9)}, true);
  TestRequest first(letters(21), 4);
  ASSERT_EQ(manager->allocate_slots(first.view(), {.num_new_tokens = 20}), 0U);
  EXPECT_EQ(hit_of(letters(21)), 0U) << "under EAGLE each pass drops another block until none is left";

  make(60, {full(), window(5), mamba(MambaCacheMode::all)});
  TestRequest second(letters(21), 4);
  ASSERT_EQ(manager->allocate_slots(second.view(), {.num_new_tokens = 20}), 0U);
  const BlockId state = second.blocks.blocks(2)[4];
  manager->evict_blocks(std::span(&state, 1));
  const KvHit hit = manager->find_prefix(second.view());
  EXPECT_EQ(hit.num_tokens, 16U);
  EXPECT_EQ(hit.groups[0].size(), 4U) << "full attention is cut, not searched again";
  EXPECT_EQ(values(hit.groups[1]), (Ids{0, 0, 0, second.blocks.blocks(1)[3].value})) << "the window is searched again";
}

TEST_F(KvTraps, Trap03GroupsOfOneKindHitTogetherOrNotAtAll) {
  make(40, {window(9), full(), window(9)});
  TestRequest request(letters(13), 4);
  ASSERT_EQ(manager->allocate_slots(request.view(), {.num_new_tokens = 12}), 0U);
  EXPECT_EQ(hit_of(letters(13)), 12U);
  const BlockId last = request.blocks.blocks(2)[2];
  manager->evict_blocks(std::span(&last, 1));
  EXPECT_EQ(hit_of(letters(13)), 8U);
}

TEST_F(KvTraps, Trap04AWindowNeedsAContiguousRunOrTheStart) {
  make(40, {window(9)});  // two blocks
  TestRequest request(letters(25), 4);
  ASSERT_EQ(manager->allocate_slots(request.view(), {.num_new_tokens = 24}), 0U);
  const auto evict = [&](std::size_t index) {
    const BlockId block = request.blocks.blocks(0)[index];
    manager->evict_blocks(std::span(&block, 1));
  };
  KvHit hit = manager->find_prefix(request.view());
  EXPECT_EQ(values(hit.groups[0]), (Ids{0, 0, 0, 0, 5, 6}));
  evict(4);
  hit = manager->find_prefix(request.view());
  EXPECT_EQ(values(hit.groups[0]), (Ids{0, 0, 3, 4}));
  evict(2);
  evict(1);
  hit = manager->find_prefix(request.view());
  EXPECT_EQ(values(hit.groups[0]), Ids{1}) << "a run that reaches the start may be shorter than the window";
  evict(0);
  EXPECT_TRUE(manager->find_prefix(request.view()).groups.empty());
}

TEST_F(KvTraps, Trap05BlocksBeforeTheChunkAreHitsWithoutALookup) {
  make(40, {chunked(8)});
  EXPECT_EQ(hit_of(letters(17)), 16U) << "nothing is cached and nothing is needed";
  TestRequest request(letters(15), 4);
  const KvHit hit = manager->find_prefix(request.view());
  EXPECT_EQ(values(hit.groups[0]), (Ids{0, 0}));
  ASSERT_EQ(prefill(request, hit), 0U);
  EXPECT_EQ(values(request.blocks.blocks(0)), (Ids{0, 0, 1, 2}));
  TestRequest twin(letters(15), 4);
  EXPECT_EQ(values(manager->find_prefix(twin.view()).groups[0]), (Ids{0, 0, 1}));
}

TEST_F(KvTraps, Trap06AStateOfTheSameStepDefersTheHit) {
  make(40, {full(), mamba(MambaCacheMode::all)});
  TestRequest first(letters(8), 4);
  ASSERT_EQ(prefill(first), 0U);
  TestRequest second(letters(9), 4);
  KvHit hit = manager->find_prefix(second.view());
  EXPECT_EQ(hit.num_tokens, 8U);
  EXPECT_EQ(values(hit.groups[1]), (Ids{0, first.blocks.blocks(1)[1].value})) << "the hit has one state after a null block";
  const SlotDemand demand{.num_new_tokens = 1, .num_new_computed_tokens = 8};
  EXPECT_EQ(manager->missing_for_full_sequence(second.view(), demand, hit), 41U + 1U - manager->pool().num_free_blocks())
      << "one block more than the pool has, and one for full attention";
  EXPECT_GT(manager->allocate_slots(second.view(), demand, hit), 0U);
  manager->new_step_starts(0.0);
  hit = manager->find_prefix(second.view());
  EXPECT_EQ(manager->allocate_slots(second.view(), demand, hit), 0U);
}

TEST_F(KvTraps, Trap07EqualBlocksCoexistAndTheFirstInsertedIsFound) {
  make(20, {full()});
  TestRequest first(letters(4), 4);
  TestRequest second(letters(4), 4);
  ASSERT_EQ(prefill(first), 0U);
  ASSERT_EQ(prefill(second), 0U);
  EXPECT_EQ(manager->pool().index().size(), 2U);
  TestRequest third(letters(5), 4);
  EXPECT_EQ(values(manager->find_prefix(third.view()).groups[0]), Ids{1});
  const BlockId block{1};
  manager->evict_blocks(std::span(&block, 1));
  EXPECT_EQ(values(manager->find_prefix(third.view()).groups[0]), Ids{2});
}

}  // namespace
}  // namespace quire::test
