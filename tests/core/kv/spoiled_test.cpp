// What no call from outside brings about: one private field is spoiled, or a part of the cache is called wrongly, and the check that
// guards it stops the program. The rules that callers can break are in invariants_test.cpp.
#include <gtest/gtest.h>

#include "core/kv/attention_managers.h"
#include "core/kv/block_pool.h"
#include "core/kv/encoder_cache.h"
#include "core/kv/free_queue.h"
#include "core/kv/hash/hash_list.h"
#include "core/kv/hash/hash_set.h"
#include "core/kv/kv_support.h"
#include "core/kv/prefix_index.h"
#include "core/kv/residency.h"

namespace quire {
namespace {

// References to blocks 0 to 3 of the pool below.
constexpr std::uint32_t kHoldersOfTwo[] = {0, 1, 1, 0};

// Of three blocks 1 and 2 are held, and both have the same name of two hashes; block 2 had it first.
BlockPool two_named_alike() {
  BlockPool pool({.num_blocks = 4, .max_hashes_per_block = 2}, nullptr);
  const BlockHash hashes[] = {test::widened(1), test::widened(2)};
  pool.allocate();
  pool.cache(pool.allocate(), BlockName(hashes, 0));
  pool.cache(BlockId{1}, BlockName(hashes, 0));
  return pool;
}

TEST(SpoiledKvDeathTest, APoolFindsItsCachedBlocksByTheirNames) {
  BlockPool pool = two_named_alike();
  pool.check_invariants(kHoldersOfTwo);
  const char* const message = "a cached block's name is findable";
  EXPECT_DEATH(
      {
        pool.index_.buckets_.assign(pool.index_.buckets_.size(), {});
        pool.check_invariants(kHoldersOfTwo);
      },
      message);
  // The name of block 1 leads to block 2, which has another one.
  EXPECT_DEATH(
      {
        pool.index_.entries_[2].num_hashes = 1;
        pool.check_invariants(kHoldersOfTwo);
      },
      message);
}

TEST(SpoiledKvDeathTest, APoolCountsItsFreeAndCachedBlocks) {
  BlockPool pool = two_named_alike();
  EXPECT_DEATH(
      {
        ++pool.free_.size_;
        pool.check_invariants(kHoldersOfTwo);
      },
      "num_free == free_.size");
  EXPECT_DEATH(
      {
        ++pool.index_.size_;
        pool.check_invariants(kHoldersOfTwo);
      },
      "num_cached == index_.size");
}

TEST(SpoiledKvDeathTest, TheNullBlockIsOutOfReach) {
  BlockPool pool = two_named_alike();
  const char* const message = "the null block is out of reach";
  EXPECT_DEATH(
      {
        ++pool.ref_counts_[0];
        pool.check_invariants(kHoldersOfTwo);
      },
      message);
  EXPECT_DEATH(
      {
        pool.index_.insert(BlockName(test::widened(3)), kNullBlock);
        pool.check_invariants(kHoldersOfTwo);
      },
      message);
  EXPECT_DEATH(
      {
        pool.free_.push_back(kNullBlock);
        pool.check_invariants(kHoldersOfTwo);
      },
      message);
  BlockPool unused(2, nullptr);
  EXPECT_DEATH(
      {
        unused.free_.push_back(kNullBlock);
        (void)unused.usage();
      },
      "the null block is never free");
}

TEST(SpoiledKvDeathTest, AFreedBlockGoesBetweenNeighbours) {
  FreeQueue queue(3);
  queue.remove(BlockId{1});
  EXPECT_DEATH(
      {
        queue.links_[2].next = 0;
        queue.push_back(BlockId{1});
      },
      "a block goes between neighbours");
  EXPECT_DEATH(
      {
        queue.links_[0].prev = 2;
        queue.push_front(BlockId{1});
      },
      "a block goes between neighbours");
}

// Somebody needs the image; of the others the sound is evicted first.
TEST(SpoiledKvDeathTest, EvictableEncoderOutputsAreCachedUnneededAndCounted) {
  const std::vector<MultimodalFeature> features{
      {"image", PlaceholderRange(0, 3)}, {"sound", PlaceholderRange(4, 2)}, {"film", PlaceholderRange(6, 1)}};
  const EncoderInputs request{RequestId{1}, features};
  EncoderCache cache(EncoderCacheMode::shared, 8);
  for (std::uint32_t input = 0; input < features.size(); ++input) cache.allocate(request, input);
  cache.release(request, 1);
  cache.release(request, 2);
  cache.check_invariants();
  auto& image = cache.cached_.find("image")->second;
  const std::string another = "book";
  const char* const needed = "an output that somebody needs can be evicted";
  EXPECT_DEATH(
      {
        cache.oldest_->evictable = false;
        cache.check_invariants();
      },
      needed);
  EXPECT_DEATH(
      {
        cache.oldest_->references = image.references;
        cache.check_invariants();
      },
      needed);
  EXPECT_DEATH(
      {
        cache.newest_->previous = nullptr;
        cache.check_invariants();
      },
      "the list of evictable outputs is broken");
  EXPECT_DEATH(
      {
        cache.newest_->identifier = &another;
        cache.check_invariants();
      },
      "an evictable output is not cached");
  EXPECT_DEATH(
      {
        ++cache.num_free_;
        cache.check_invariants();
      },
      ": embeddings do not add up");
  EXPECT_DEATH(
      {
        cache.newest_ = cache.oldest_;
        cache.check_invariants();
      },
      "the list of evictable outputs has a wrong end");
  EXPECT_DEATH(
      {
        image.references.clear();
        cache.check_invariants();
      },
      "an output without references cannot be evicted");
}

TEST(SpoiledKvDeathTest, AnEncoderOutputKnowsItsIdentifier) {
  EncoderCache cache(EncoderCacheMode::shared, 8);
  const std::vector<MultimodalFeature> features{{"image", PlaceholderRange(0, 3)}};
  const EncoderInputs request{RequestId{1}, features};
  cache.allocate(request, 0);
  const std::string another = "sound";
  EXPECT_DEATH(
      {
        cache.cached_.find("image")->second.identifier = &another;
        cache.release(request, 0);
      },
      "an output knows its identifier");
}

TEST(SpoiledKvDeathTest, AHitIsAttachedToASequenceOnce) {
  BlockPool pool(4, nullptr);
  FullAttentionManager manager({.group = 0, .block_size = 4, .hash_block_size = 4}, pool);
  GroupBlockList list;
  list.num_cached_blocks = 0;
  const BlockId hit[] = {BlockId{1}};
  manager.attach(list, {}, 4, 0);
  EXPECT_DEATH(manager.attach(list, hit, 4, 0), "a sequence that was met has no hit");
}

TEST(SpoiledKvDeathTest, AHashSetHasAFreeSlotAndAPowerOfTwoOfThem) {
  HashSet set;
  set.insert(test::widened(1));
  const char* const message = "a power of two, and a slot is free";
  EXPECT_DEATH(
      {
        set.slots_.resize(96);
        set.insert(test::widened(2));
      },
      message);
  EXPECT_DEATH(
      {
        set.size_ = 1000;
        set.insert(test::widened(2));
      },
      message);
}

TEST(SpoiledKvDeathTest, AListOfBlocksDoesNotShrink) {
  KvCacheManager kv(test::config_of(8, {test::full()}), test::options_of());
  test::TestRequest request("abcdefgh", 4);
  ASSERT_EQ(kv.allocate_slots(request.view(), {.num_new_tokens = 8}), 0U);
  ASSERT_EQ(request.blocks.new_blocks(0).size(), 2U);
  EXPECT_DEATH(
      {
        request.blocks.groups_[0].num_before_allocation = 3;
        (void)request.blocks.new_blocks(0);
      },
      "a list does not shrink");
}

TEST(SpoiledKvDeathTest, AChainOfNamesEndsWhereItsBucketSays) {
  PrefixIndex index(4);
  index.insert(BlockName(test::widened(1)), BlockId{1});
  EXPECT_DEATH(
      {
        index.entries_[1].next = 3;
        index.insert(BlockName(test::widened(1)), BlockId{2});
      },
      "the last of a chain");
}

TEST(SpoiledKvDeathTest, APlaceInAListIsNotNegative) {
  EXPECT_DEATH((void)as_index(-1), "a place in a list");
  EXPECT_DEATH(BlockHashList({}, 0, 16), "a hash names tokens");
}

TEST(SpoiledKvDeathTest, OnlyBlocksOfThePoolAreFollowed) {
  KvResidency residency(4, 1.0, true);
  residency.begin(0, 1);
  residency.on_allocated(BlockId{3});
  EXPECT_DEATH(residency.on_allocated(BlockId{4}), "a new block of the pool");
  EXPECT_DEATH(residency.on_accessed(BlockId{4}), "a used block of the pool");
  EXPECT_DEATH(residency.on_evicted(BlockId{4}), "an evicted block of the pool");
}

TEST(SpoiledKvDeathTest, AForkIsOfABlankChildAndOfBlocksWithNames) {
  BlockPool pool(4, nullptr);
  const GroupOptions options{.group = 0, .block_size = 4, .hash_block_size = 4};
  FullAttentionManager manager(options, pool);
  GroupBlockList parent;
  GroupBlockList child;
  manager.allocate(parent, {.num_tokens = 4});
  const ForkPoint point{.num_computed = 4, .parent_next = 4};
  EXPECT_DEATH(manager.share(parent, child, point), "full blocks have names");
  EXPECT_DEATH(manager.share(parent, parent, point), "a child is blank");
  EXPECT_DEATH(CrossAttentionManager(options, pool).share(parent, child, point), "states of an encoder are not shared");
}

TEST(SpoiledKvDeathTest, AnEncoderInputIsOneOfItsRequest) {
  EncoderCache cache(EncoderCacheMode::shared, 8);
  const EncoderInputs without{RequestId{1}, {}};
  EXPECT_DEATH((void)cache.can_allocate(without, 0, 8, 0), "asked for an input of the request");
  EXPECT_DEATH(cache.allocate(without, 0), "room for an input of the request");
  EXPECT_DEATH(cache.release(without, 0), "release an input of the request");
}

}  // namespace
}  // namespace quire
