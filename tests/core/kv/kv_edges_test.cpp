// Tests edge cases in which one token, one block or one group makes the difference.
#include <gtest/gtest.h>

#include "core/kv/kv_support.h"
#include "core/kv/kv_traps.h"
#include "core/kv/residency.h"

namespace quire::test {
namespace {

using KvEdges = KvTraps;

// The groups are full attention and a window of one token. In the window only the dropped block must be present. A second lookup would drop
// no block and would need the block before it.
TEST_F(KvEdges, FullAttentionAndOneOtherKindAreSearchedOnce) {
  options.rules.eagle_drops_once = true;
  KvCacheManager& kv = make(40, {full(), window(1)}, true);
  TestRequest first(letters(16), 4);
  ASSERT_EQ(prefill(first), 0U);
  kv.evict_blocks(first.blocks.blocks(1).subspan(2, 1));
  EXPECT_EQ(hit_of(letters(21)), 12U);
  kv.evict_blocks(first.blocks.blocks(1).subspan(3, 1));
  EXPECT_EQ(hit_of(letters(21)), 4U) << "the window's second block is dropped";
}

TEST_F(KvEdges, CountsTheBlockOfAnExternalTokenBeyondTheModelsLength) {
  for (const std::uint32_t num_blocks : {17U, 18U}) {
    KvCacheManager& kv = make(num_blocks, {full()});
    leave_cached(letters(64));
    TestRequest request(letters(66), 4);
    const KvHit hit = kv.find_prefix(request.view());
    ASSERT_EQ(hit.num_tokens, options.max_model_len);
    const SlotDemand demand{.num_new_computed_tokens = 64, .num_external_tokens = 1, .delay_caching = true};
    EXPECT_EQ(kv.allocate_slots(request.view(), demand, hit), 18U - num_blocks);
    EXPECT_EQ(request.blocks.blocks(0).size(), num_blocks == 18 ? 17U : 0U);
  }
}

// The encoder has no input, so only one of the two groups has blocks.
TEST_F(KvEdges, ASequenceHoldsBlocksIfAnyOfItsGroupsDoes) {
  options.enable_caching = false;
  KvCacheManager& kv = make(8, {full(), cross()});
  TestRequest request("abcdefgh", 4);
  EXPECT_FALSE(KvCacheManager::holds_any(request.blocks)) << "the manager does not know the sequence";
  ASSERT_EQ(prefill(request), 0U);
  ASSERT_FALSE(request.blocks.blocks(0).empty());
  ASSERT_TRUE(request.blocks.blocks(1).empty());
  EXPECT_TRUE(KvCacheManager::holds_any(request.blocks));
  std::vector<SwappedOutBlock> taken;
  kv.swap_out(request.blocks, 8, taken);
  ASSERT_EQ(request.blocks.blocks(0).size(), 2U);
  EXPECT_FALSE(KvCacheManager::holds_any(request.blocks)) << "null blocks do not count";
  kv.free(request.blocks);
  EXPECT_FALSE(KvCacheManager::holds_any(request.blocks));
}

TEST(KvResidencyNumbers, SamplesBlocksByTheNumberOfTheStepOnly) {
  KvResidency residency(64, 0.5);
  const auto followed_with = [&](std::uint64_t number) {
    residency.reset();
    residency.begin(0, number);
    for (std::uint32_t block = 0; block < 64; ++block) residency.on_allocated(BlockId{block});
    std::vector<BlockId> blocks;
    for (const KvResidency::Followed& one : residency.followed()) blocks.push_back(one.block);
    return blocks;
  };
  const std::vector<BlockId> first = followed_with(1), second = followed_with(2);
  EXPECT_NE(first, second);
  EXPECT_EQ(followed_with(1), first);
  EXPECT_EQ(followed_with(2), second);
}

}  // namespace
}  // namespace quire::test
