// Edges at which one token, one block or one group decides.
#include <gtest/gtest.h>

#include "core/kv/kv_support.h"
#include "core/kv/kv_traps.h"
#include "core/kv/residency.h"

namespace quire {
namespace {

using test::letters;
using test::TestRequest;
using KvEdges = test::KvTraps;

// Full attention and a window of the token itself: of the window nothing but the block that is dropped must be there. A second look, which
// would drop none, would ask for the block before it.
TEST_F(KvEdges, FullAttentionAndOneOtherKindAreLookedThroughOnce) {
  options.eagle_drops_once = true;
  KvCacheManager& kv = make(40, {test::full(), test::window(1)}, true);
  TestRequest first(letters(16), 4);
  ASSERT_EQ(prefill(first), 0U);
  kv.evict_blocks(first.blocks.blocks(1).subspan(2, 1));
  EXPECT_EQ(hit_of(letters(21)), 12U);
  kv.evict_blocks(first.blocks.blocks(1).subspan(3, 1));
  EXPECT_EQ(hit_of(letters(21)), 4U) << "the window's second block is dropped";
}

TEST_F(KvEdges, OneExternalTokenBeyondTheModelsLengthHasABlockThatIsCounted) {
  for (const std::uint32_t num_blocks : {17U, 18U}) {
    KvCacheManager& kv = make(num_blocks, {test::full()});
    leave_cached(letters(64));
    TestRequest request(letters(66), 4);
    const KvHit hit = kv.find_prefix(request.view());
    ASSERT_EQ(hit.num_tokens, options.max_model_len);
    const SlotDemand demand{.num_new_computed_tokens = 64, .num_external_tokens = 1, .delay_caching = true};
    EXPECT_EQ(kv.allocate_slots(request.view(), demand, hit), 18U - num_blocks);
    EXPECT_EQ(request.blocks.blocks(0).size(), num_blocks == 18 ? 17U : 0U);
  }
}

// No input for the encoder: only one of the two groups has blocks.
TEST_F(KvEdges, ASequenceHoldsSomethingWhereAnyOfItsGroupsDoes) {
  options.enable_caching = false;
  KvCacheManager& kv = make(8, {test::full(), test::cross()});
  TestRequest request("abcdefgh", 4);
  EXPECT_FALSE(KvCacheManager::holds_any(request.blocks)) << "nobody has met it";
  ASSERT_EQ(prefill(request), 0U);
  ASSERT_FALSE(request.blocks.blocks(0).empty());
  ASSERT_TRUE(request.blocks.blocks(1).empty());
  EXPECT_TRUE(KvCacheManager::holds_any(request.blocks));
  std::vector<TakenBlock> taken;
  kv.take_out(request.blocks, 8, taken);
  ASSERT_EQ(request.blocks.blocks(0).size(), 2U);
  EXPECT_FALSE(KvCacheManager::holds_any(request.blocks)) << "null blocks are none";
  kv.free(request.blocks);
  EXPECT_FALSE(KvCacheManager::holds_any(request.blocks));
}

TEST(KvResidencyNumbers, WhichBlocksAreFollowedFollowsFromTheNumberOfTheStepAlone) {
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
}  // namespace quire
