// The rest of spoiled_test.cpp: parts of the cache that are called as no other part calls them, about blocks and tokens that there are not.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/kv/attention_managers.h"
#include "core/kv/block_pool.h"
#include "core/kv/encoder_cache.h"
#include "core/kv/encoder_cache_order.h"
#include "core/kv/free_queue.h"
#include "core/kv/hash/hash_bytes.h"
#include "core/kv/hash/hash_function.h"
#include "core/kv/hash/hash_input.h"
#include "core/kv/hash/hash_set.h"
#include "core/kv/hit_query.h"
#include "core/kv/kv_cache_manager.h"
#include "core/kv/kv_coordinator.h"
#include "core/kv/kv_support.h"
#include "core/kv/prefix_index.h"

namespace quire {
namespace {

constexpr GroupOptions kFours{.group = 0, .block_size = 4, .hash_block_size = 4};

TEST(SpoiledKvCallsDeathTest, APoolKnowsItsBlocks) {
  EXPECT_DEATH(BlockPool({.num_blocks = 4, .hash_bytes = 0}, nullptr), "a name has bytes");
  BlockPool pool(4, nullptr);
  EXPECT_DEATH(pool.touch(BlockId{4}), "a block of the pool is touched");
  EXPECT_DEATH(pool.release(BlockId{4}), "a block of the pool is released");
  EXPECT_DEATH(pool.set_aside(4), "blocks are set aside at start");
  EXPECT_DEATH(pool.cache(kNullBlock, BlockName(test::widened(1))), "a block of the pool has a name");
  EXPECT_DEATH((void)pool.free_.contains(BlockId{9}), "asked about a block of the pool");
  EXPECT_DEATH((void)pool.index_.contains(BlockId{9}), "asked about a block of the pool");
  BlockPool lone({.num_blocks = 1}, nullptr);
  EXPECT_DEATH(
      {
        lone.free_.push_back(kNullBlock);
        lone.allocate();
      },
      "the null block is not among the free ones");
}

TEST(SpoiledKvCallsDeathTest, NamesAreOfBlocksAndNoLongerThanTheirGroups) {
  PrefixIndex index(4);
  const BlockHash hashes[] = {test::widened(2), test::widened(1)};
  index.insert(BlockName(hashes[1]), BlockId{1});
  EXPECT_DEATH((void)index.find(BlockName(hashes, 0)), "a name is no longer than its group's");
  EXPECT_DEATH((void)index.name_of(BlockId{4}), "a block of the pool");
  EXPECT_DEATH(
      {
        index.size_ = 0;
        index.remove(BlockId{1});
      },
      "blocks with a name were counted");
  KvEventLog log(true, 32);
  EXPECT_DEATH(log.removed(BlockName(std::span<const BlockHash>(), 0)), "what is removed had a name");
}

TEST(SpoiledKvCallsDeathTest, TablesHaveRoomAndBytesTheirWord) {
  const HashSet set;
  EXPECT_DEATH((void)set.slot_of(test::widened(1)), "a set with room");
  std::vector<std::uint32_t> three(3);
  EXPECT_DEATH(SmallIntSetOrder::insert(three, 1), "a table of a power of two");
  HashBytes bytes;
  EXPECT_DEATH(bytes.put_low_bytes(0, 9), "a word has eight bytes");
  std::vector<BlockHash> names;
  const auto function = make_hash_function({});
  ASSERT_TRUE(function.has_value());
  EXPECT_DEATH(hash_full_blocks(**function, {}, 0, names), "a block has tokens to name");
  const RequestContent content{};
  HashInputs inputs(content, 4, 0);
  EXPECT_DEATH((void)inputs.items(4, 4), "blocks are walked from left to right");
}

TEST(SpoiledKvCalls, ErasingBytesMovesWhatIsWrittenAndNothingBehindIt) {
  HashBytes bytes;
  for (std::uint8_t byte = 0; byte < 40; ++byte) bytes.put(byte);
  std::span<std::uint8_t> rest = std::span(bytes.storage_).subspan(bytes.size());
  ASSERT_GE(rest.size(), 40U);
  for (std::size_t i = 0; i < rest.size(); ++i) rest[i] = static_cast<std::uint8_t>(100 + i % 100);
  const std::vector<std::uint8_t> before(rest.begin(), rest.end());
  bytes.erase(10, 9);
  ASSERT_EQ(bytes.size(), 31U);
  for (std::size_t i = 0; i < bytes.size(); ++i) EXPECT_EQ(bytes.view()[i], i < 10 ? i : i + 9);
  EXPECT_TRUE(std::ranges::equal(rest, before));
}

TEST(SpoiledKvCallsDeathTest, ASequenceKnowsItsOwnCopy) {
  KvBlocks blocks;
  blocks.groups_.resize(1);
  blocks.groups_[0].copied_from = BlockId{1};
  blocks.groups_[0].copied_block = 3;
  EXPECT_DEATH((void)blocks.own_copy(0), "the copy is in the list");
}

TEST(SpoiledKvCallsDeathTest, AManagerIsAskedForTokensAndPlacesThatThereAre) {
  BlockPool pool(8, nullptr);
  FullAttentionManager manager(kFours, pool);
  GroupBlockList list;
  EXPECT_DEATH((void)manager.blocks_needed(list, {.num_tokens = -1}, {}), "a count of tokens");
  EXPECT_DEATH((void)manager.attach(list, {}, -1, 0), "counts of tokens");
  manager.allocate(list, {.num_tokens = 4});
  TakenBlock taken{.group = 0, .index = 0, .block = {}, .had_name = true};
  EXPECT_DEATH(manager.bring_back(list, taken), "its place waits for it");
  taken.index = 1;
  EXPECT_DEATH(manager.bring_back(list, taken), "its place waits for it");
  EXPECT_DEATH(
      {
        list.shared_block = 5;
        manager.own_written(list, 0);
      },
      "the shared block is in the list");
  EXPECT_DEATH(
      {
        manager.num_tracked_ = 0;
        (void)manager.common_prefix(list);
      },
      "the sequence itself is met");
  KvBlocks blocks;
  taken.index = 0;
  EXPECT_DEATH(
      {
        list.num_cached_blocks = 1;
        manager.name_again(list, {.blocks = blocks, .hashes = {}}, taken);
      },
      "what had a name has its name still");
}

TEST(SpoiledKvCallsDeathTest, AForkTakesBlocksThatTheParentHas) {
  BlockPool pool(8, nullptr);
  GroupOptions options = kFours;
  options.enable_caching = false;
  FullAttentionManager manager(options, pool);
  GroupBlockList parent;
  GroupBlockList child;
  manager.allocate(parent, {.num_tokens = 4});
  EXPECT_DEATH(manager.share(parent, child, {.num_computed = 8, .parent_next = 8}), "can_share\\(\\) was asked");
}

TEST(SpoiledKvCallsDeathTest, TheManagerOfAllGroupsIsAskedAboutItsOwn) {
  const KvCacheOptions options{.max_model_len = 64, .hash_block_size = 4};
  KvCacheManager kv(test::config_of(16, {test::full()}), options);
  EXPECT_DEATH((void)kv.block_size(1), "a group of this manager");
  EXPECT_DEATH((void)kv.coordinator_->block_size(1), "a group of the cache");
  test::TestRequest request("abcdefgh", 4);
  const std::vector<std::vector<BlockId>> two_lists(2);
  EXPECT_DEATH((void)kv.missing_for_full_sequence(request.view(), {}, {.groups = two_lists}), "a hit that this manager found");
  KvBlocks child;
  EXPECT_DEATH((void)kv.fork(request.view(), 9, child, 9), "a child begins with known tokens");
  TakenBlock taken{.group = 1, .index = 0, .block = BlockId{1}, .had_name = false};
  EXPECT_DEATH((void)kv.bring_back(request.view(), {&taken, 1}, {.num_tokens = 8}), "what was taken out belongs to a group");
  EXPECT_DEATH(kv.name_again(request.view(), {&taken, 1}), "a block that came back");
  EXPECT_DEATH((void)kv.coordinator_->find(request.hashes, -1), "a hit is looked for among known tokens");
}

TEST(SpoiledKvCallsDeathTest, OutputsOfAnEncoderAreAskedForWhereTheyAreKept) {
  const std::vector<MultimodalFeature> features{{"image", PlaceholderRange(0, 3)}};
  const EncoderInputs request{RequestId{1}, features};
  EncoderCache cache(EncoderCacheMode::shared, 8);
  EXPECT_DEATH((void)cache.can_allocate(request, 0, 8, -1), "what the step has planned already");
  EXPECT_DEATH((void)cache.evictable_embeds("image"), "asked about an output that is cached");
}

TEST(SpoiledKvCallsDeathTest, AHitHasALength) {
  BlockPool pool(4, nullptr);
  const BlockHashList names({}, 4, 4);
  std::vector<std::vector<BlockId>> hits(1);
  std::vector<BlockId> found(1);
  const std::uint32_t groups[] = {0};
  HitQuery query(pool, names, groups, {.max_tokens = 8, .alignment = 4}, hits, found);
  EXPECT_DEATH(query.assign_null(-1), "a list has a length");
}

}  // namespace
}  // namespace quire
