// Rules of use that a caller inside the program must keep: whoever breaks one stops the program with a message instead of corrupting
// blocks. One test per class.
#include <gtest/gtest.h>

#include "core/kv/attention_managers.h"
#include "core/kv/cache_groups.h"
#include "core/kv/cache_groups_merge.h"
#include "core/kv/cache_groups_size.h"
#include "core/kv/encoder_cache.h"
#include "core/kv/hash/hash_encode.h"
#include "core/kv/hash/hash_function.h"
#include "core/kv/hit_query.h"
#include "core/kv/kv_support.h"
#include "core/kv/kv_traps.h"
#include "core/kv/mamba_manager.h"

namespace quire {
namespace {

using test::TestRequest;
using KvInvariantDeathTest = test::KvTraps;

BlockHash some_hash() {
  return test::widened(7);
}

GroupOptions group_options(std::uint32_t block_size = 4) {
  return {.group = 0, .block_size = block_size, .hash_block_size = 4, .enable_caching = true, .record_new_blocks = false};
}

TEST(InvariantDeathTest, PrefixIndexNamesHaveAsManyHashesAsTheirGroup) {
  EXPECT_DEATH(PrefixIndex(2, 0), "max_hashes > 0");
  PrefixIndex index(2);
  const std::vector<BlockHash> two(2);
  EXPECT_DEATH((void)index.find(BlockName(std::span<const BlockHash>(), 0)), "a name has a hash");
  EXPECT_DEATH(index.insert(BlockName(std::span<const BlockHash>(), 0), BlockId{1}), "at least one hash");
  EXPECT_DEATH(index.insert(BlockName(two, 0), BlockId{1}), "as many as its group has");
}

TEST(InvariantDeathTest, BlockPoolHasANullBlockAndKnowsItsBlocks) {
  EXPECT_DEATH(BlockPool(0, nullptr), "a pool has the null block");
  BlockPool pool(3, nullptr);
  EXPECT_DEATH(pool.evict(BlockId{3}), "no such block");
  pool.allocate();
  const std::vector<std::uint32_t> nobody(3, 0);
  EXPECT_DEATH(pool.check_invariants(nobody), "a reference per holder");
}

TEST(InvariantDeathTest, ResidencySamplesAShare) {
  EXPECT_DEATH(KvResidency(4, 1.5), "a fraction");
  EXPECT_DEATH(KvResidency(4, -0.5), "a fraction");
}

TEST(InvariantDeathTest, BlocksHoldWholeHashBlocks) {
  BlockPool pool(4, nullptr);
  EXPECT_DEATH(TokensPerBlock(0), "a block has tokens");
  EXPECT_DEATH(FullAttentionManager(group_options(6), pool), "a whole number of hash blocks");
  const std::vector<BlockHash> hashes(3);
  EXPECT_DEATH(BlockHashList(hashes, 4, 6), "a whole number of hash blocks");
  const BlockHashList names(hashes, 4, 8);
  EXPECT_EQ(names[0].size(), 2U);
  EXPECT_DEATH((void)names[1], "a full block") << "the third hash is half a block";
}

TEST(InvariantDeathTest, AttentionKindsHaveSizes) {
  BlockPool pool(4, nullptr);
  EXPECT_DEATH(SlidingWindowManager(group_options(), 0, pool), "a token attends to itself");
  EXPECT_DEATH(ChunkedLocalManager(group_options(), 0, pool), "a chunk has a token");
  EXPECT_DEATH(SinkFullAttentionManager(group_options(), 3, pool), "a sink fills its blocks");
}

TEST(InvariantDeathTest, StatesOfAnEncoderAreNeitherSharedNorCached) {
  BlockPool pool(4, nullptr);
  CrossAttentionManager manager(group_options(), pool);
  GroupBlockList list;
  TestRequest request("abcd", 4);
  const BlockId hit[] = {BlockId{1}};
  EXPECT_DEATH(manager.attach(list, hit, 4, 0), "not shared");
  EXPECT_DEATH(manager.cache(list, request.view(), 4), "not cached");
  const std::vector<BlockHash> hashes(1);
  const BlockHashList names(hashes, 4, 4);
  std::vector<std::vector<BlockId>> hits(1);
  std::vector<BlockId> found(1);
  const std::uint32_t groups[] = {0};
  HitQuery query(pool, names, groups, {.max_tokens = 4, .alignment = 4}, hits, found);
  EXPECT_DEATH(manager.find(query), "not cached");
}

TEST(InvariantDeathTest, ASearchHasGroupsAndStaysWithinItsHit) {
  BlockPool pool(4, nullptr);
  const std::vector<BlockHash> hashes(2);
  const BlockHashList names(hashes, 4, 4);
  std::vector<std::vector<BlockId>> hits(1);
  std::vector<BlockId> found(1);
  const HitQuery::Limits limits{.max_tokens = 8, .alignment = 4};
  EXPECT_DEATH(HitQuery(pool, names, {}, limits, hits, found), "a bucket has groups");
  const std::uint32_t two_groups[] = {0, 1};
  EXPECT_DEATH(HitQuery(pool, names, two_groups, limits, hits, found), "room for a block of each");
  const std::uint32_t groups[] = {0};
  HitQuery query(pool, names, groups, limits, hits, found);
  query.assign_null(1);
  EXPECT_DEATH(query.put(1), "a place made by assign_null");
  EXPECT_DEATH(query.truncate(2), "cut, not extended");
  EXPECT_DEATH(query.truncate(-1), "cut, not extended");
}

TEST(InvariantDeathTest, KeysOfASearchAreKnown) {
  BlockPool pool(8, nullptr);
  const BlockHashList no_names({}, 4, 4);
  std::vector<std::vector<BlockId>> hits(1);
  std::vector<BlockId> found(1);
  const std::uint32_t groups[] = {0};
  HitQuery query(pool, no_names, groups, {.max_tokens = 8, .alignment = 4}, hits, found);
  const MambaSpec mamba = std::get<MambaSpec>(test::mamba(MambaCacheMode::all));
  EXPECT_DEATH(SlidingWindowManager(group_options(), 4, pool).find(query), "known tokens have names");
  EXPECT_DEATH(ChunkedLocalManager(group_options(), 8, pool).find(query), "known tokens have names");
  EXPECT_DEATH(MambaManager(group_options(), mamba, pool).find(query), "known tokens have names");
}

TEST_F(KvInvariantDeathTest, OptionsAreCheckedFirst) {
  options.max_model_len = 0;
  EXPECT_DEATH(make(8, {test::full()}), "options have been checked");
}

TEST_F(KvInvariantDeathTest, BlocksAndHitsBelongToOneManager) {
  KvCacheManager& kv = make(16, {test::full(), test::window(8)});
  TestRequest request("abcdefgh", 4);
  ASSERT_EQ(prefill(request), 0U);
  const std::vector<std::vector<BlockId>> one_list(1);
  TestRequest other("abcdefgh", 4);
  EXPECT_DEATH((void)kv.allocate_slots(other.view(), {.num_new_tokens = 4}, {.groups = one_list}), "a hit of this manager");
  std::uint32_t one_number[1];
  EXPECT_DEATH(kv.common_prefix_blocks(request.blocks, one_number), "a number per group");
  KvCacheManager single(test::config_of(16, {test::full()}), options);
  EXPECT_DEATH(single.free(request.blocks), "the blocks of one manager");
}

TEST_F(KvInvariantDeathTest, HitsComeFirstAndOnlyWithCaching) {
  KvCacheManager& kv = make(16, {test::full()});
  leave_cached("abcdefgh");
  TestRequest request("abcdefghi", 4);
  const KvHit hit = kv.find_prefix(request.view());
  ASSERT_EQ(hit.num_tokens, 8U);
  ASSERT_EQ(prefill(request, hit), 0U);
  EXPECT_DEATH((void)kv.allocate_slots(request.view(), {.num_new_tokens = 1}, hit), "a sequence that was met has no hit");
  EXPECT_DEATH((void)kv.allocate_slots(request.view(), {}), "nothing to allocate for");

  options.enable_caching = false;
  KvCacheManager plain(test::config_of(16, {test::full()}), options);
  TestRequest other("abcdefghi", 4);
  EXPECT_DEATH((void)plain.allocate_slots(other.view(), {.num_new_tokens = 1, .num_new_computed_tokens = 8}, hit),
               "without prefix caching");
}

TEST_F(KvInvariantDeathTest, OnlyKnownTokensAreLookedUpAndCached) {
  KvCacheManager& kv = make(16, {test::full()});
  TestRequest request("abcdefgh", 4);
  ASSERT_EQ(prefill(request), 0U);
  EXPECT_DEATH(kv.cache_blocks(request.view(), 9), "only known tokens are cached");
  TestRequest nothing;
  EXPECT_DEATH((void)kv.find_prefix(nothing.view()), "num_tokens > 0");
  TestRequest nameless("abcdefgh", 4);
  nameless.hashes.clear();
  EXPECT_DEATH(prefill(nameless), "a full block of known tokens has a name");
}

TEST_F(KvInvariantDeathTest, EventsTellTheContent) {
  options.enable_events = true;
  KvCacheManager& kv = make(16, {test::full()});
  TestRequest request("abcdefgh", 4);
  KvRequest view = request.view();
  view.content = nullptr;
  EXPECT_DEATH((void)kv.allocate_slots(view, {.num_new_tokens = 8}), "events carry the content");
  EXPECT_DEATH(KvEventLog(true, 33), "so many bytes");
  KvEventLog log(true, 32);
  const std::vector<BlockHash> hashes(1);
  const BlockId blocks[] = {BlockId{1}, BlockId{2}};
  const std::vector<TokenId> four_tokens(4);
  const RequestContent content{.tokens = four_tokens, .lora_name = {}, .multimodal = {}, .cache_salt = {}, .prompt_embeds = {}};
  const StoredBlocks stored{.blocks = blocks, .names = {hashes, 4, 4}, .first_block = 0, .block_size = 4, .content = content};
  EXPECT_DEATH(KvEventLog(false, 32).stored(stored), "nobody asks for events");
  EXPECT_DEATH(log.stored(stored), "stored blocks have names");
  const StoredBlocks longer{.blocks = {blocks, 1}, .names = {hashes, 4, 4}, .first_block = 0, .block_size = 8, .content = content};
  EXPECT_DEATH(log.stored(longer), "a full block has known tokens");
}

TEST_F(KvInvariantDeathTest, SequencesAreCounted) {
  KvCacheManager& kv = make(16, {test::full()});
  TestRequest request("abcdefgh", 4);
  ASSERT_EQ(prefill(request), 0U);
  const KvBlocks* sequences[] = {&request.blocks};
  kv.check_invariants(sequences);
  EXPECT_DEATH(kv.check_invariants({}), "a reference per holder");
  kv.free(request.blocks);
  KvBlocks empty;
  std::uint32_t common[1];
  kv.common_prefix_blocks(empty, common);
  EXPECT_DEATH(kv.check_invariants({}), "sequences are counted");
}

TEST(InvariantDeathTest, HashBytesStayWithinWhatWasWritten) {
  HashBytes bytes;
  bytes.put(little_endian<4>(1));
  EXPECT_DEATH(bytes.overwrite(2, little_endian<4>(1)), "only what is written is overwritten");
  EXPECT_DEATH(bytes.erase(2, 3), "only what is written is erased");
}

TEST(InvariantDeathTest, HashingHasABlockSizeAndAName) {
  const RequestContent content{};
  EXPECT_DEATH(HashInputs(content, 0, 0), "a block has tokens");
  const std::vector<std::uint8_t> long_parent(256);
  HashBytes out;
  EXPECT_DEATH(encode_pickle(long_parent, HashInput{}, out), "the length takes one byte");
  EXPECT_DEATH((void)to_string(static_cast<HashAlgorithm>(99)), "every algorithm has a name");
}

TEST(InvariantDeathTest, EncoderCacheIsAskedBeforeItIsFilled) {
  EXPECT_DEATH(EncoderCache(EncoderCacheMode::shared, -1), "a cache has a size");
  EncoderCache cache(EncoderCacheMode::shared, 4);
  const std::vector<MultimodalFeature> features{{"image", PlaceholderRange(0, 3)}, {"sound", PlaceholderRange(4, 2)}};
  const EncoderInputs request{RequestId{1}, features};
  EXPECT_DEATH((void)cache.check_and_reference(request, 2), "an input of the request");
  cache.allocate(request, 0);
  EXPECT_DEATH(cache.allocate(request, 1), "can_allocate is asked first");
  EncoderCache larger(EncoderCacheMode::shared, 8);
  larger.allocate(request, 0);
  larger.release(request, 0);
  const EncoderInputs other{RequestId{2}, std::span(features).first(1)};
  EXPECT_DEATH(larger.allocate(other, 0), "referenced, not allocated");
}

TEST(InvariantDeathTest, SetOrderKeepsEveryValue) {
  SmallIntSetOrder order;
  std::vector<std::uint32_t> values{9, UINT32_MAX};
  EXPECT_DEATH(order.apply(values), "every value comes back");
}

TEST(InvariantDeathTest, CacheGroupsAreMadeOfCheckedLayers) {
  EXPECT_DEATH((void)merge_specs({}), "something to merge");
  EXPECT_DEATH((void)is_uniform_type({}), "something to compare");
  EXPECT_DEATH((void)divide_up(1, 0), "parts have a size");
  EXPECT_DEATH((void)max_concurrency({}, {}), "a model without a cache has no limit");
  EXPECT_DEATH((void)plan_kv_cache({}, {}, {}), "each worker has its memory");
  FullAttentionSpec headless;
  headless.num_kv_heads = 0;
  const KvCacheGroup weightless{.layer_names = {"layer"}, .spec = headless, .layer_specs = {}};
  EXPECT_DEATH((void)kv_cache_config({weightless}, 1 << 20, {}), "a block has bytes");
  KvCacheGroup uneven{.layer_names = {"a", "b"}, .spec = test::full(), .layer_specs = {test::full()}};
  EXPECT_DEATH((void)kv_cache_config({uneven}, 1 << 20, {}), "a spec for each layer");
}

TEST(InvariantDeathTest, ManagersCountBlocksBeforeTheyTakeThem) {
  BlockPool pool(3, nullptr);
  FullAttentionManager manager(group_options(), pool);
  GroupBlockList list;
  EXPECT_DEATH(manager.allocate(list, {.num_tokens = 12}), "counted before they are taken");
  pool.allocate();
  const BlockId block = pool.allocate();
  pool.cache(block, BlockName(some_hash()));
  EXPECT_DEATH(pool.cache(block, BlockName(some_hash())), "a block has one name");
}

TEST(InvariantDeathTest, BlocksThatAreSetAsideAreNobodys) {
  BlockPool pool(4, nullptr);
  pool.set_aside(1);
  EXPECT_DEATH(pool.touch(BlockId{1}), "a block is free or held");
}

TEST(InvariantDeathTest, AListHoldsWhatItsManagerPutThere) {
  BlockPool pool(8, nullptr);
  FullAttentionManager full(group_options(), pool);
  GroupBlockList given;
  given.blocks = {BlockId{1}};
  EXPECT_DEATH(full.attach(given, {}, 4, 0), "hits come before all other blocks");

  const MambaSpec spec = std::get<MambaSpec>(test::mamba(MambaCacheMode::align, 2));
  MambaManager states(group_options(), spec, pool);
  GroupBlockList running;
  running.has_running_state = true;
  const GroupDemand demand{.num_tokens = 16, .num_main_model_tokens = 16};
  EXPECT_DEATH(states.allocate(running, demand), "a running state lies before its speculative blocks");
  running.blocks = {kNullBlock, kNullBlock, kNullBlock};
  EXPECT_DEATH(states.allocate(running, demand), "a speculative state has a block");
  running.last_state_block = 3;
  EXPECT_DEATH(states.remove_skipped(running, 40), "the last state has a place");
}

}  // namespace
}  // namespace quire
