// Tests behaviors of vLLM V1 (v0.19.0) that a reimplementation misses most easily, numbered as in the list of such behaviors. This file
// tests allocating and freeing blocks. Blocks have four tokens unless stated otherwise.
#include "core/kv/kv_traps.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "core/kv/mamba_manager.h"

namespace quire::test {
namespace {

using Ids = std::vector<std::uint32_t>;

TEST_F(KvTraps, Trap08AFailedAllocationStillFreesBlocksThatTheWindowHasPassed) {
  make(6, {window(5)});
  TestRequest request(letters(20), 4);
  ASSERT_EQ(manager->allocate_slots(request.view(), {.num_new_tokens = 16}), 0U);
  EXPECT_EQ(manager->pool().num_free_blocks(), 1U);
  request.num_computed = 16;
  EXPECT_EQ(manager->allocate_slots(request.view(), {.num_new_tokens = 30}), 4U) << "eight blocks are needed and four are free by then";
  EXPECT_EQ(values(request.blocks.blocks(0)), (Ids{0, 0, 0, 4}));
  EXPECT_EQ(queue(), (Ids{5, 3, 2, 1}));
}

TEST_F(KvTraps, Trap09AHitOnAFreeBlockUsesAFreeBlock) {
  make(5, {full()});
  leave_cached(letters(8));
  TestRequest request(letters(16), 4);
  const KvHit hit = manager->find_prefix(request.view());
  EXPECT_EQ(hit.num_tokens, 8U);
  EXPECT_EQ(manager->missing_for_full_sequence(request.view(), {.num_new_computed_tokens = 8}, hit), 0U)
      << "two new blocks and two hits use four free blocks";
  TestRequest longer(letters(17), 4);
  EXPECT_EQ(manager->missing_for_full_sequence(longer.view(), {.num_new_computed_tokens = 8}, hit), 1U);
}

TEST_F(KvTraps, Trap09HitsThatTheWindowHasPassedUseNoFreeBlock) {
  make(6, {window(5)});
  leave_cached(letters(16));
  TestRequest request(letters(20), 4);
  // External tokens move the window past the hit.
  const KvHit hit = manager->find_prefix(request.view());
  EXPECT_EQ(values(hit.groups[0]), (Ids{0, 0, 0, 4}));
  const SlotDemand demand{.num_new_tokens = 1, .num_new_computed_tokens = 16, .num_external_tokens = 3};
  ASSERT_EQ(manager->allocate_slots(request.view(), demand, hit), 0U);
  EXPECT_EQ(values(request.blocks.blocks(0)), (Ids{0, 0, 0, 4, 5}));
  TestRequest later(letters(24), 4);
  ASSERT_EQ(manager->allocate_slots(later.view(), {.num_new_tokens = 1, .num_new_computed_tokens = 16, .num_external_tokens = 7}, hit), 0U);
  EXPECT_EQ(values(later.blocks.blocks(0)), (Ids{0, 0, 0, 0, 3, 2})) << "the window has passed 19 tokens, including the hit";
}

TEST_F(KvTraps, Trap10WithoutAHitNothingIsMarkedUntilABlockIsFull) {
  make(20, {full()});
  TestRequest request(letters(7), 4);
  ASSERT_EQ(manager->allocate_slots(request.view(), {.num_new_tokens = 3}), 0U);
  EXPECT_EQ(request.blocks.num_cached_blocks(0), std::nullopt);
  request.num_computed = 3;
  ASSERT_EQ(manager->allocate_slots(request.view(), {.num_new_tokens = 3}), 0U);
  EXPECT_EQ(request.blocks.num_cached_blocks(0), 1U);

  TestRequest marked("ab", 4);
  const std::vector<std::vector<BlockId>> empty(1);
  ASSERT_EQ(manager->allocate_slots(marked.view(), {.num_new_tokens = 2}, {.groups = empty, .num_tokens = 0}), 0U);
  EXPECT_EQ(marked.blocks.num_cached_blocks(0), 0U) << "an empty hit that is not the shared one marks the sequence";
  TestRequest external("cdef", 4);
  ASSERT_EQ(manager->allocate_slots(external.view(), {.num_new_tokens = 1, .num_external_tokens = 3}), 0U);
  EXPECT_EQ(external.blocks.num_cached_blocks(0), 1U);
}

TEST_F(KvTraps, Trap11SlotsEndAtTheModelLengthAndDraftsAreNeverCached) {
  options.max_model_len = 16;
  make(20, {full()});
  TestRequest request(letters(6), 4);
  ASSERT_EQ(manager->allocate_slots(request.view(), {.num_new_tokens = 8, .num_lookahead_tokens = 40}), 0U);
  EXPECT_EQ(request.blocks.blocks(0).size(), 4U);
  EXPECT_EQ(request.blocks.num_cached_blocks(0), 1U) << "six tokens are known and two are draft tokens";
  TestRequest delayed(letters(8), 4);
  delayed.append("zz");
  ASSERT_EQ(manager->allocate_slots(delayed.view(), {.num_external_tokens = 8, .delay_caching = true}), 0U);
  EXPECT_EQ(delayed.blocks.num_cached_blocks(0), 0U) << "the blocks are attached but not cached before the transfer completes";
  EXPECT_TRUE(delayed.blocks.new_blocks(0).empty()) << "new blocks do not include external blocks";
  manager->cache_blocks(delayed.view(), 8);
  EXPECT_EQ(delayed.blocks.num_cached_blocks(0), 2U);
}

TEST_F(KvTraps, Trap13TheWholeSequenceCountsEvenWithAWindow) {
  make(5, {window(5)});
  TestRequest request(letters(20), 4);
  EXPECT_EQ(manager->missing_for_full_sequence(request.view(), {}), 1U) << "five blocks count although two at a time are enough";
  TestRequest smaller(letters(16), 4);
  EXPECT_EQ(manager->missing_for_full_sequence(smaller.view(), {}), 0U);
  options.max_model_len = 16;
  make(5, {full()});
  EXPECT_EQ(manager->missing_for_full_sequence(request.view(), {}), 0U) << "the number is limited by the model's length";
}

TEST_F(KvTraps, MaxStepTokensLimitsTheReservationToWhatWindowsHold) {
  options.max_step_tokens = 4;
  make(5, {window(5)});
  TestRequest request(letters(20), 4);
  EXPECT_EQ(manager->missing_for_full_sequence(request.view(), {}), 0U)
      << "four tokens before the step and four in it need at most three blocks";
  make(3, {window(5)});
  EXPECT_EQ(manager->missing_for_full_sequence(request.view(), {}), 1U);
  TestRequest shorter(letters(8), 4);
  EXPECT_EQ(manager->missing_for_full_sequence(shorter.view(), {}), 0U) << "the sequence has fewer blocks than a window holds";
  make(4, {chunked(5)});
  EXPECT_EQ(manager->missing_for_full_sequence(request.view(), {}), 0U) << "four tokens of the chunk are before the step";
  make(3, {chunked(5)});
  EXPECT_EQ(manager->missing_for_full_sequence(request.view(), {}), 1U);
  make(5, {full()});
  EXPECT_EQ(manager->missing_for_full_sequence(request.view(), {}), 1U) << "full attention keeps everything";
}

// Each of two groups hits a free block, and each must load one block.
TEST_F(KvTraps, HitsBeforeLoadsTakesHitsFirst) {
  for (const bool hits_first : {false, true}) {
    options.rules.hits_before_loads = hits_first;
    make(5, {full(), window(6)});
    leave_cached(letters(4));
    leave_cached("x");
    ASSERT_EQ(queue(), (Ids{1, 2, 3, 4}));
    TestRequest request(letters(9), 4);
    const KvHit hit = manager->find_prefix(request.view());
    ASSERT_EQ(hit.num_tokens, 4U);
    const SlotDemand demand{.num_new_computed_tokens = 4, .num_external_tokens = 4, .delay_caching = true};
    ASSERT_EQ(manager->allocate_slots(request.view(), demand, hit), 0U);
    EXPECT_EQ(values(request.blocks.blocks(0)), hits_first ? (Ids{1, 3}) : (Ids{1, 2}));
    EXPECT_EQ(values(request.blocks.blocks(1)), hits_first ? (Ids{2, 4}) : (Ids{2, 3}))
        << "without the option the same block is in both groups";
  }
}

TEST_F(KvTraps, Trap14FreesLastToFirstGroupByGroup) {
  make(12, {full(), window(9)});
  TestRequest request(letters(10), 4);
  ASSERT_EQ(prefill(request), 0U);
  EXPECT_EQ(values(request.blocks.blocks(0)), (Ids{1, 2, 3}));
  EXPECT_EQ(values(request.blocks.blocks(1)), (Ids{4, 5, 6}));
  manager->free(request.blocks);
  EXPECT_EQ(queue(), (Ids{7, 8, 9, 10, 11, 3, 2, 1, 6, 5, 4}));
  EXPECT_EQ(hit_of(letters(10)), 8U) << "hashes stay until a block is reused";
}

TEST_F(KvTraps, Trap14SkippedBlocksAreFreedLastToFirstUpToTheFirstNull) {
  make(12, {window(5)});
  TestRequest request(letters(30), 4);
  ASSERT_EQ(manager->allocate_slots(request.view(), {.num_new_tokens = 28}), 0U);
  manager->remove_skipped_blocks(request.blocks, 12);
  EXPECT_EQ(queue(), (Ids{8, 9, 10, 11, 2, 1}));
  manager->remove_skipped_blocks(request.blocks, 24);
  EXPECT_EQ(queue(), (Ids{8, 9, 10, 11, 2, 1, 5, 4, 3}));
  EXPECT_EQ(values(request.blocks.blocks(0)), (Ids{0, 0, 0, 0, 0, 6, 7}));
}

TEST_F(KvTraps, Trap15TheNullBlockIsNotCounted) {
  make(5, {window(5)});
  EXPECT_EQ(manager->usage(), 0.0);
  TestRequest request(letters(12), 4);
  ASSERT_EQ(prefill(request), 0U);
  EXPECT_EQ(manager->usage(), 0.75);
  manager->remove_skipped_blocks(request.blocks, 12);
  EXPECT_EQ(manager->pool().ref_count(kNullBlock), 0U);
  EXPECT_FALSE(manager->reset_prefix_cache());
  manager->free(request.blocks);
  EXPECT_TRUE(manager->reset_prefix_cache());
  EXPECT_TRUE(manager->take_prefix_cache_stats().reset);
  EXPECT_EQ(hit_of(letters(12)), 0U);
}

TEST_F(KvTraps, Trap16BeforeTheFirstTokenAStateSkipsMinusOne) {
  make(12, {mamba(MambaCacheMode::all)});
  EXPECT_EQ(MambaManager::num_skipped_tokens(0), -1);
  TestRequest request(letters(4), 4);
  manager->remove_skipped_blocks(request.blocks, 0);
  EXPECT_EQ(manager->missing_for_full_sequence(request.view(), {}), 0U);
  ASSERT_EQ(prefill(request), 0U);
  EXPECT_EQ(values(request.blocks.blocks(0)), Ids{1}) << "a skip of minus one adds no block";
}

TEST_F(KvTraps, Trap17AlignedStatesTakeOneBlockAndSpeculativeStatesMoveUp) {
  make(20, {mamba(MambaCacheMode::align, 2)});
  TestRequest request(letters(30), 4);
  ASSERT_EQ(manager->allocate_slots(request.view(), {.num_new_tokens = 16}), 0U);
  EXPECT_EQ(values(request.blocks.blocks(0)), (Ids{0, 0, 0, 1, 2, 3})) << "the running state and two speculative states";
  request.num_computed = 16;
  ASSERT_EQ(manager->allocate_slots(request.view(), {.num_new_tokens = 8}), 0U);
  EXPECT_EQ(values(request.blocks.blocks(0)), (Ids{0, 0, 0, 1, 0, 3, 2, 4}))
      << "block 2 moves because it is before the new state; block 3 becomes the state";
  EXPECT_EQ(values(request.blocks.new_blocks(0)), (Ids{2, 4})) << "blocks after the old end are moved or new";
  request.num_computed = 24;
  ASSERT_EQ(manager->allocate_slots(request.view(), {.num_new_tokens = 6}), 0U);
  EXPECT_EQ(values(request.blocks.blocks(0)), (Ids{0, 0, 0, 0, 0, 3, 0, 4, 2, 5})) << "the state before the last is freed one step late";
  EXPECT_EQ(queue().back(), 1U);
  EXPECT_EQ(manager->missing_for_full_sequence(request.view(), {}), 0U);
}

TEST_F(KvTraps, Trap17DraftsCountAsRejectedWhenStatesAreSkipped) {
  make(20, {mamba(MambaCacheMode::all, 2)});
  TestRequest request(letters(12), 4);
  ASSERT_EQ(prefill(request), 0U);
  EXPECT_EQ(values(request.blocks.blocks(0)), (Ids{1, 2, 3, 4, 5})) << "each speculative state has one more block";
  manager->remove_skipped_blocks(request.blocks, 10);
  EXPECT_EQ(values(request.blocks.blocks(0)), (Ids{0, 2, 3, 4, 5})) << "ten minus two minus the last one: seven tokens are skipped";
}

TEST_F(KvTraps, Trap32CommonPrefixCountsAllRequestsThatHoldBlocks) {
  make(40, {full(), window(40)});
  leave_cached(letters(8));
  TestRequest first(letters(10), 4);
  TestRequest second(letters(8) + "xyz", 4);
  ASSERT_EQ(prefill(first, manager->find_prefix(first.view())), 0U);
  ASSERT_EQ(prefill(second, manager->find_prefix(second.view())), 0U);
  std::vector<std::uint32_t> counts(2);
  manager->common_prefix_blocks(first.blocks, counts);
  EXPECT_EQ(counts, (Ids{2, 0}));
  TestRequest waiting("0123", 4);
  ASSERT_EQ(manager->allocate_slots(waiting.view(), {.num_external_tokens = 3, .delay_caching = true}), 0U);
  manager->common_prefix_blocks(first.blocks, counts);
  EXPECT_EQ(counts, (Ids{0, 0})) << "a request that waits for a transfer holds blocks too";
  manager->free(waiting.blocks);
  manager->free(second.blocks);
  manager->common_prefix_blocks(first.blocks, counts);
  EXPECT_EQ(counts, (Ids{3, 0}));
}

TEST_F(KvTraps, Trap37LargerBlocksHaveSeveralHashes) {
  make(40, {full(8), window(8)});
  TestRequest request(letters(16), 4);
  ASSERT_EQ(prefill(request), 0U);
  const std::vector<std::uint8_t> key = manager->pool().key_of(request.blocks.blocks(0)[1]);
  ASSERT_EQ(key.size(), 68U);
  EXPECT_EQ(std::vector<std::uint8_t>(key.begin() + 32, key.begin() + 64),
            std::vector<std::uint8_t>(request.hashes[3].bytes.begin(), request.hashes[3].bytes.end()));
  const std::vector<std::uint8_t> small = manager->pool().key_of(request.blocks.blocks(1)[1]);
  ASSERT_EQ(small.size(), 36U);
  EXPECT_EQ(small.back(), 1) << "the last byte is the group";
  EXPECT_EQ(hit_of(letters(16)), 8U);
}

TEST_F(KvTraps, Trap38MakesOneEventPerCallWithoutNullBlocksButWithTheirTokens) {
  options.enable_events = true;
  make(40, {window(5)});
  TestRequest request(letters(20), 4);
  request.lora = "adapter";
  request.salt = "salt";
  request.features = {{"image", PlaceholderRange(2, 4)}};
  ASSERT_EQ(manager->allocate_slots(request.view(), {.num_external_tokens = 16, .delay_caching = true}), 0U);
  EXPECT_EQ(values(request.blocks.blocks(0)), (Ids{0, 0, 0, 1}));
  request.num_computed = 16;
  ASSERT_EQ(manager->allocate_slots(request.view(), {.num_new_tokens = 4}), 0U);
  std::vector<KvEvent> events;
  manager->take_events(events);
  ASSERT_EQ(events.size(), 1U);
  const auto& stored = std::get<BlockStored>(events[0]);
  EXPECT_EQ(stored.block_hashes.size(), 2U);
  ASSERT_TRUE(stored.parent_block_hash.has_value());
  EXPECT_EQ(stored.token_ids.size(), 8U);
  EXPECT_EQ(stored.lora_id, 7);
  EXPECT_EQ(stored.lora_name, "adapter");
  EXPECT_EQ(stored.medium, "GPU");
  ASSERT_TRUE(stored.extra_keys.has_value());
  EXPECT_EQ(stored.extra_keys->at(0), KvExtraKeys{std::string("adapter")});
}

TEST_F(KvTraps, Trap38MakesAnEventEvenIfAllBlocksAreNull) {
  options.enable_events = true;
  make(40, {mamba(MambaCacheMode::align)});
  TestRequest request(letters(13), 4);
  request.features = {{"image", PlaceholderRange(2, 4)}};
  ASSERT_EQ(manager->allocate_slots(request.view(), {.num_new_tokens = 13}), 0U);
  std::vector<KvEvent> events;
  manager->take_events(events);
  ASSERT_EQ(events.size(), 1U);
  const auto& stored = std::get<BlockStored>(events[0]);
  EXPECT_TRUE(stored.block_hashes.empty());
  EXPECT_EQ(stored.parent_block_hash, std::nullopt);
  EXPECT_EQ(stored.token_ids.size(), 12U);
  EXPECT_EQ(stored.extra_keys, std::nullopt);
}

TEST_F(KvTraps, EventsNameTheGroupOfTheirBlocks) {
  options.enable_events = true;
  make(20, {full(), window(5)});
  TestRequest request(letters(8), 4);
  ASSERT_EQ(prefill(request), 0U);
  manager->free(request.blocks);
  TestRequest other(std::string(36, 'z'), 4);
  ASSERT_EQ(prefill(other), 0U);
  std::vector<KvEvent> events;
  manager->take_events(events);
  std::map<std::uint32_t, std::multiset<KvEventHash>> held;
  std::size_t num_removed = 0;
  for (const KvEvent& event : events) {
    if (const auto* stored = std::get_if<BlockStored>(&event)) {
      held[stored->group_idx].insert(stored->block_hashes.begin(), stored->block_hashes.end());
    } else if (const auto* removed = std::get_if<BlockRemoved>(&event)) {
      const auto found = held[removed->group_idx].find(removed->block_hash);
      ASSERT_NE(found, held[removed->group_idx].end()) << "a removed block was stored in this group";
      held[removed->group_idx].erase(found);
      ++num_removed;
    }
  }
  EXPECT_GT(num_removed, 0U);
  EXPECT_EQ(held.size(), 2U);
}

TEST_F(KvTraps, Trap38MakesOneEventPerEvictedBlockAndOneForAReset) {
  options.enable_events = true;
  make(4, {full()});
  TestRequest request(letters(8), 4);
  request.salt = "salt";
  request.features = {{"image", PlaceholderRange(2, 4)}};
  ASSERT_EQ(prefill(request), 0U);
  manager->free(request.blocks);
  TestRequest other("abcdefghijk", 4);
  ASSERT_EQ(prefill(other), 0U);
  manager->free(other.blocks);
  ASSERT_TRUE(manager->reset_prefix_cache());
  std::vector<KvEvent> events;
  manager->take_events(events);
  ASSERT_EQ(events.size(), 5U);
  const auto& stored = std::get<BlockStored>(events[0]);
  const KvExtraKeys first{MultimodalKey{"image", 2}, std::string("salt")};
  const KvExtraKeys second{MultimodalKey{"image", -2}};
  EXPECT_EQ(stored.extra_keys->at(0), first);
  EXPECT_EQ(stored.extra_keys->at(1), second);
  EXPECT_EQ(stored.lora_id, std::nullopt);
  EXPECT_EQ(std::get<BlockRemoved>(events[1]).block_hash, stored.block_hashes[1]);
  EXPECT_EQ(std::get<BlockRemoved>(events[2]).block_hash, stored.block_hashes[0]);
  EXPECT_TRUE(std::holds_alternative<BlockStored>(events[3]));
  EXPECT_TRUE(std::holds_alternative<AllBlocksCleared>(events[4]));
  events.clear();
  manager->take_events(events);
  EXPECT_TRUE(events.empty());
}

TEST_F(KvTraps, Trap39ZeroesOnlyPlainFullAttentionWhenLayersKeepStates) {
  make(40, {mla(), full(), mamba(MambaCacheMode::all)});
  TestRequest request(letters(6), 4);
  ASSERT_EQ(prefill(request), 0U);
  std::vector<BlockId> blocks;
  manager->take_new_block_ids(blocks);
  EXPECT_EQ(values(blocks), values(request.blocks.blocks(1)));
  manager->take_new_block_ids(blocks);
  EXPECT_EQ(blocks.size(), 2U) << "each block is returned once";
  make(40, {full(), window(8)});
  TestRequest plain(letters(6), 4);
  ASSERT_EQ(prefill(plain), 0U);
  blocks.clear();
  manager->take_new_block_ids(blocks);
  EXPECT_TRUE(blocks.empty());
}

}  // namespace
}  // namespace quire::test
