// Tests which blocks get their hashes back after they were swapped out of a sequence and swapped in again.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "core/kv/attention_managers.h"
#include "core/kv/block_pool.h"
#include "core/kv/kv_support.h"

namespace quire::test {
namespace {

constexpr GroupOptions kFours{.group = 0, .block_size = 4, .hash_block_size = 4};

// The sequence has two blocks and the second is half full. Both were swapped out and swapped in again. Other requests took two blocks,
// which lost their content.
class SwappedInBlocks : public testing::Test {
 protected:
  SwappedInBlocks() {
    manager.attach(list, {}, 0, 0);
    manager.allocate(list, {.num_tokens = 6});
    manager.cache(list, request.view(), 6);
    manager.swap_out(list, 6, taken);
    other = {pool.allocate(), pool.allocate()};
    pool.cache(other[0], widened(99));
    pool.cache(other[1], widened(98));
    for (SwappedOutBlock& one : taken) manager.swap_in(list, one);
  }
  void restore_hashes() {
    for (const SwappedOutBlock& one : taken) manager.restore_hashes(list, request.view(), one);
  }
  std::optional<BlockId> found(std::size_t index) const { return pool.find_cached(request.hashes[index]); }

  BlockPool pool{5, nullptr};
  FullAttentionManager manager{kFours, pool};
  TestRequest request{"abcdefgh", 4};
  GroupBlockList list;
  std::vector<SwappedOutBlock> taken;
  std::vector<BlockId> other;
};

TEST_F(SwappedInBlocks, GetTheirHashesBack) {
  ASSERT_EQ(taken.size(), 2U);
  EXPECT_TRUE(taken[0].was_hashed);
  EXPECT_FALSE(taken[1].was_hashed);
  restore_hashes();
  EXPECT_EQ(found(0), list.blocks[0]);
  EXPECT_EQ(found(1), std::nullopt);
  EXPECT_FALSE(pool.index().contains(list.blocks[1])) << "the block was never full";
}

TEST_F(SwappedInBlocks, AreNotHashedTwiceIfAStepHasFilledThemSince) {
  manager.cache(list, request.view(), 8);
  EXPECT_EQ(found(1), list.blocks[1]) << "the first block does not have its hash back yet";
  restore_hashes();
  EXPECT_EQ(found(0), list.blocks[0]);
  EXPECT_EQ(found(1), list.blocks[1]);
  EXPECT_EQ(pool.index().size(), 4U) << "two hashes belong to other blocks";
}

TEST_F(SwappedInBlocks, StayUnhashedIfTheSequenceHasNoCachedBlocks) {
  list.num_cached_blocks = 0;
  restore_hashes();
  EXPECT_EQ(pool.index().size(), 2U) << "its tokens must be computed again";
  list.num_cached_blocks.reset();
  restore_hashes();
  EXPECT_EQ(pool.index().size(), 2U);
}

TEST_F(SwappedInBlocks, HaveNoHashesWithoutCaching) {
  GroupOptions options = kFours;
  options.enable_caching = false;
  FullAttentionManager uncached(options, pool);
  for (const SwappedOutBlock& one : taken) uncached.restore_hashes(list, request.view(), one);
  EXPECT_EQ(pool.index().size(), 2U);
}

}  // namespace
}  // namespace quire::test
