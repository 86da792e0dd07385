// The rest of spoiled_test.cpp: lists and chains whose links disagree. Whoever walks them next notices, before a block is given out twice.
#include <gtest/gtest.h>

#include <vector>

#include "core/kv/attention_managers.h"
#include "core/kv/block_pool.h"
#include "core/kv/encoder_cache.h"
#include "core/kv/free_queue.h"
#include "core/kv/kv_cache_manager.h"
#include "core/kv/kv_coordinator.h"
#include "core/kv/kv_support.h"
#include "core/kv/prefix_index.h"

namespace quire {
namespace {

TEST(SpoiledLinksDeathTest, FreeBlocksKnowTheirNeighboursAndAreCounted) {
  FreeQueue queue(3);
  EXPECT_EQ(queue.to_vector().size(), 3U);
  EXPECT_DEATH(
      {
        queue.links_[0].next = 2;
        queue.remove(BlockId{1});
      },
      "neighbours know each other");
  EXPECT_DEATH(
      {
        queue.links_[2].prev = 0;
        queue.remove(BlockId{1});
      },
      "neighbours know each other");
  EXPECT_DEATH(
      {
        queue.links_[0].next = 2;
        (void)queue.to_vector();
      },
      "free blocks are counted");
  EXPECT_DEATH(
      {
        queue.links_[1].prev = 2;
        queue.check_invariants();
      },
      "who comes next knows who came before");
  EXPECT_DEATH(
      {
        queue.links_[0].prev = FreeQueue::kUnlinked;
        queue.check_invariants();
      },
      "a block is linked both ways or not at all");
  BlockPool pool(4, nullptr);
  EXPECT_DEATH((void)pool.ref_count(BlockId{4}), "asked about a block of the pool");
  EXPECT_DEATH(
      {
        pool.ref_counts_[1] = 1;
        pool.allocate();
      },
      "ref_counts_\\[block.value\\] == 0");
}

TEST(SpoiledLinksDeathTest, NamesOfOneBucketAreAChainAndAreCounted) {
  PrefixIndex index(4);
  const auto hash = test::widened(1);
  const BlockName name(hash);
  for (const std::uint32_t block : {1U, 2U}) index.insert(name, BlockId{block});
  EXPECT_EQ(index.to_vector().size(), 2U);
  EXPECT_DEATH(
      {
        index.entries_[2].prev = 3;
        index.check_invariants();
      },
      "a chain can be walked back");
  EXPECT_DEATH(
      {
        index.entries_[1].group = 1;
        index.check_invariants();
      },
      "a name is in the chain where it is looked for");
  EXPECT_DEATH(
      {
        index.entries_[1].next = 3;
        index.remove(BlockId{2});
      },
      "the chain passes here");
  EXPECT_DEATH(
      {
        index.entries_[2].prev = 3;
        index.remove(BlockId{2});
      },
      "the chain passes here");
  EXPECT_DEATH(
      {
        index.entries_[1].next = index.entries_[2].next;
        (void)index.to_vector();
      },
      "blocks with a name are counted");
}

TEST(SpoiledLinksDeathTest, AnEncoderOutputIsEvictableOnceAndEvictedWhileThereIsOne) {
  EncoderCache cache(EncoderCacheMode::shared, 8);
  const std::vector<MultimodalFeature> features{{"image", PlaceholderRange(0, 3)}, {"sound", PlaceholderRange(4, 2)}};
  const EncoderInputs request{RequestId{1}, features};
  for (std::uint32_t input = 0; input < features.size(); ++input) cache.allocate(request, input);
  cache.release(request, 0);
  EXPECT_DEATH(cache.link(cache.cached_.find("image")->second), "an output is evictable once");
  EXPECT_DEATH(cache.unlink(cache.cached_.find("sound")->second), "only an evictable output is in the list");
  cache.evict_oldest();
  EXPECT_DEATH(cache.evict_oldest(), "free and evictable embeddings do not add up");
}

TEST(SpoiledLinks, EncoderOutputsThatAreTakenOverReplaceAllThatWereThere) {
  EncoderCache cache(EncoderCacheMode::shared, 8);
  const std::vector<MultimodalFeature> features{{"image", PlaceholderRange(0, 4)}, {"sound", PlaceholderRange(4, 4)}};
  const EncoderInputs request{RequestId{1}, features};
  cache.allocate(request, 0);
  cache.allocate(request, 1);
  const auto held = cache.to_kept();
  cache.release_all(request);
  ASSERT_EQ(cache.evictable().size(), 2U);
  ASSERT_TRUE(cache.assign(held, {}));
  EXPECT_TRUE(cache.evictable().empty()) << "those that could be evicted are gone";
  EXPECT_EQ(cache.references("image").size(), 1U);
  EXPECT_EQ(cache.references("sound").size(), 1U);
}

TEST(SpoiledLinksDeathTest, ASequenceIsCountedUntilItsBlocksGoAndSharesOneThatItHas) {
  BlockPool pool(8, nullptr);
  FullAttentionManager manager({.group = 0, .block_size = 4, .hash_block_size = 4}, pool);
  GroupBlockList list;
  manager.allocate(list, {.num_tokens = 8});
  EXPECT_TRUE(list.tracked);
  EXPECT_DEATH(
      {
        manager.num_tracked_ = 0;
        manager.free(list);
      },
      "counted when it was met");
  EXPECT_DEATH(
      {
        list.shared_block = 2;
        (void)manager.writes_shared(list, 8);
      },
      "a shared block is one of the list");
  std::vector<TakenBlock> taken;
  EXPECT_DEATH(
      {
        pool.ref_counts_[0] = 1;
        list.blocks[1] = kNullBlock;
        manager.take_out(list, 8, taken);
      },
      "nobody has it to himself");
}

TEST(SpoiledLinks, TheBlocksOfASequenceAreOfThePoolAndItsPlacesInTheList) {
  const auto is_sound = [](auto spoil) {
    KvBlocks blocks;
    blocks.groups_.resize(1);
    GroupBlockList& list = blocks.groups_[0];
    list.blocks = {BlockId{1}, BlockId{7}};
    list.copied_from = BlockId{3};
    list.copied_block = list.num_before_allocation = 1;
    spoil(list);
    return blocks.is_sound(1, 8);
  };
  EXPECT_TRUE(is_sound([](GroupBlockList& /*list*/) {}));
  EXPECT_TRUE(is_sound([](GroupBlockList& list) { list.num_before_allocation = 2; }));
  EXPECT_TRUE(is_sound([](GroupBlockList& list) { list.last_state_block = list.shared_block = 1; }));
  EXPECT_TRUE(is_sound([](GroupBlockList& list) {
    list.copied_from = kNullBlock;
    list.copied_block = 9;
  })) << "no copy was made";
  EXPECT_FALSE(is_sound([](GroupBlockList& list) { list.blocks[1] = BlockId{8}; }));
  EXPECT_FALSE(is_sound([](GroupBlockList& list) { list.copied_from = BlockId{8}; }));
  EXPECT_FALSE(is_sound([](GroupBlockList& list) { list.copied_block = 2; }));
  EXPECT_FALSE(is_sound([](GroupBlockList& list) { list.num_before_allocation = 3; }));
  EXPECT_FALSE(is_sound([](GroupBlockList& list) { list.last_state_block = 2; }));
  EXPECT_FALSE(is_sound([](GroupBlockList& list) { list.shared_block = 2; }));
  KvBlocks two;
  EXPECT_TRUE(two.is_sound(1, 8)) << "of a sequence that has none";
  two.groups_.resize(2);
  EXPECT_FALSE(two.is_sound(1, 8));
}

TEST(SpoiledLinksDeathTest, BlocksGoBackInTheOrderInWhichTheyAreDue) {
  KvCacheManager kv(test::config_of(8, {test::full()}), test::options_of());
  test::TestRequest first("abcdefgh", 4), second("ABCD", 4);
  ASSERT_EQ(kv.allocate_slots(first.view(), {.num_new_tokens = 8}), 0U);
  ASSERT_EQ(kv.allocate_slots(second.view(), {.num_new_tokens = 4}), 0U);
  kv.free_later(first.blocks, 3);
  EXPECT_DEATH(kv.free_later(second.blocks, 2), "what is freed later is not due before");
  kv.free_later(second.blocks, 3);
}

TEST(SpoiledLinksDeathTest, AHitIsShorterThanWhatWasAskedFor) {
  KvCacheOptions options = test::options_of();
  options.log_stats = true;
  KvCacheManager kv(test::config_of(8, {test::full()}), options);
  test::TestRequest request("abcdefgh", 4);
  EXPECT_DEATH(kv.count_admission(request.view(), 8), "hits are among the tokens that were asked for");
  EXPECT_DEATH(kv.coordinator_->truncate_full_hits(4), "other groups only shorten a hit");
}

}  // namespace
}  // namespace quire
