// Blocks that are taken out of a sequence and come back: which of them get their names again.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "core/kv/attention_managers.h"
#include "core/kv/block_pool.h"
#include "core/kv/kv_support.h"

namespace quire {
namespace {

using test::TestRequest;

constexpr GroupOptions kFours{.group = 0, .block_size = 4, .hash_block_size = 4};

// A sequence of two blocks, of which the second is half full; both were taken out and have come back: others took
// two blocks, and what these had in them is forgotten.
class TakenBlocks : public testing::Test {
 protected:
  TakenBlocks() {
    manager.attach(list, {}, 0, 0);
    manager.allocate(list, {.num_tokens = 6});
    manager.cache(list, request.view(), 6);
    manager.take_out(list, 6, taken);
    other = {pool.allocate(), pool.allocate()};
    pool.cache(other[0], test::widened(99));
    pool.cache(other[1], test::widened(98));
    for (TakenBlock& one : taken) manager.bring_back(list, one);
  }
  void name_again() {
    for (const TakenBlock& one : taken) manager.name_again(list, request.view(), one);
  }
  std::optional<BlockId> found(std::size_t place) const { return pool.find_cached(request.hashes[place]); }

  BlockPool pool{5, nullptr};
  FullAttentionManager manager{kFours, pool};
  TestRequest request{"abcdefgh", 4};
  GroupBlockList list;
  std::vector<TakenBlock> taken;
  std::vector<BlockId> other;
};

TEST_F(TakenBlocks, GetTheNamesThatTheyHad) {
  ASSERT_EQ(taken.size(), 2U);
  EXPECT_TRUE(taken[0].had_name);
  EXPECT_FALSE(taken[1].had_name);
  name_again();
  EXPECT_EQ(found(0), list.blocks[0]);
  EXPECT_EQ(found(1), std::nullopt);
  EXPECT_FALSE(pool.index().contains(list.blocks[1])) << "it was never full";
}

TEST_F(TakenBlocks, AreNotNamedTwiceWhereAStepHasFilledThemSince) {
  manager.cache(list, request.view(), 8);
  EXPECT_EQ(found(1), list.blocks[1]) << "the first has its name from before, and none yet";
  name_again();
  EXPECT_EQ(found(0), list.blocks[0]);
  EXPECT_EQ(found(1), list.blocks[1]);
  EXPECT_EQ(pool.index().size(), 4U) << "with two of others";
}

TEST_F(TakenBlocks, StayWithoutANameWhereTheSequenceHasNone) {
  list.num_cached_blocks = 0;
  name_again();
  EXPECT_EQ(pool.index().size(), 2U) << "its tokens are to be computed again";
  list.num_cached_blocks.reset();
  name_again();
  EXPECT_EQ(pool.index().size(), 2U);
}

TEST_F(TakenBlocks, HaveNoNamesWithoutCaching) {
  GroupOptions options = kFours;
  options.enable_caching = false;
  FullAttentionManager uncached(options, pool);
  for (const TakenBlock& one : taken) uncached.name_again(list, request.view(), one);
  EXPECT_EQ(pool.index().size(), 2U);
}

}  // namespace
}  // namespace quire
