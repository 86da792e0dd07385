// Tests the rules of use that callers inside the program must keep. A violation stops the program with a message instead of corrupting
// blocks. There is one test per class.
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

namespace quire::test {
namespace {

using KvInvariantDeathTest = KvTraps;

BlockHash some_hash() {
  return widened(7);
}

GroupOptions group_options(std::uint32_t block_size = 4) {
  return {.group = 0, .block_size = block_size, .hash_block_size = 4, .enable_caching = true, .record_new_blocks = false};
}

TEST(InvariantDeathTest, PrefixIndexKeysHaveAsManyHashesAsTheirGroup) {
  EXPECT_DEATH(PrefixIndex(2, 0), "max_hashes > 0");
  PrefixIndex index(2);
  const std::vector<BlockHash> two(2);
  EXPECT_DEATH((void)index.find(BlockKey(std::span<const BlockHash>(), 0)), "a block key has at least one hash");
  EXPECT_DEATH(index.insert(BlockKey(std::span<const BlockHash>(), 0), BlockId{1}),
               "a block key has at least one hash, and at most as many as its group");
  EXPECT_DEATH(index.insert(BlockKey(two, 0), BlockId{1}), "a block key has at least one hash, and at most as many as its group");
}

TEST(InvariantDeathTest, BlockPoolHasANullBlockAndKnowsItsBlocks) {
  EXPECT_DEATH(BlockPool(0, nullptr), "the pool has at least the null block");
  BlockPool pool(3, nullptr);
  EXPECT_DEATH(pool.evict(BlockId{3}), "the evicted block is in the pool");
  pool.allocate();
  const std::vector<std::uint32_t> no_holders(3, 0);
  EXPECT_DEATH(pool.check_invariants(no_holders), "the reference count equals the number of holders");
}

TEST(InvariantDeathTest, ResidencySampleRateIsBetweenZeroAndOne) {
  EXPECT_DEATH(KvResidency(4, 1.5), "the sample rate is between 0 and 1");
  EXPECT_DEATH(KvResidency(4, -0.5), "the sample rate is between 0 and 1");
}

TEST(InvariantDeathTest, BlocksHoldWholeHashBlocks) {
  BlockPool pool(4, nullptr);
  EXPECT_DEATH(TokensPerBlock(0), "the block size is positive");
  EXPECT_DEATH(FullAttentionManager(group_options(6), pool), "a whole number of hash blocks");
  const std::vector<BlockHash> hashes(3);
  EXPECT_DEATH(BlockHashList(hashes, 4, 6), "a whole number of hash blocks");
  const BlockHashList block_hashes(hashes, 4, 8);
  EXPECT_EQ(block_hashes[0].size(), 2U);
  EXPECT_DEATH((void)block_hashes[1], "the block has all of its hashes") << "the third hash covers half a block";
}

TEST(InvariantDeathTest, AttentionKindsHaveSizes) {
  BlockPool pool(4, nullptr);
  EXPECT_DEATH(SlidingWindowManager(group_options(), 0, pool), "a sliding window has at least one token");
  EXPECT_DEATH(ChunkedLocalManager(group_options(), 0, pool), "a chunk has at least one token");
  EXPECT_DEATH(SinkFullAttentionManager(group_options(), 3, pool), "the sink size is a multiple of the block size");
}

TEST(InvariantDeathTest, CrossAttentionBlocksAreNeitherSharedNorCached) {
  BlockPool pool(4, nullptr);
  CrossAttentionManager manager(group_options(), pool);
  GroupBlockList list;
  TestRequest request("abcd", 4);
  const BlockId hit[] = {BlockId{1}};
  EXPECT_DEATH(manager.attach(list, hit, 4, 0), "cross-attention blocks are not shared");
  EXPECT_DEATH(manager.cache(list, request.view(), 4), "cross-attention blocks are not cached");
  const std::vector<BlockHash> hashes(1);
  const BlockHashList block_hashes(hashes, 4, 4);
  std::vector<std::vector<BlockId>> hits(1);
  std::vector<BlockId> found(1);
  const std::uint32_t groups[] = {0};
  HitQuery query(pool, block_hashes, groups, {.max_tokens = 4, .alignment = 4}, hits, found);
  EXPECT_DEATH(manager.find(query), "cross-attention blocks are not cached");
}

TEST(InvariantDeathTest, ALookupHasGroupsAndStaysWithinItsHit) {
  BlockPool pool(4, nullptr);
  const std::vector<BlockHash> hashes(2);
  const BlockHashList block_hashes(hashes, 4, 4);
  std::vector<std::vector<BlockId>> hits(1);
  std::vector<BlockId> found(1);
  const HitQuery::Limits limits{.max_tokens = 8, .alignment = 4};
  EXPECT_DEATH(HitQuery(pool, block_hashes, {}, limits, hits, found), "a bucket has groups, and there is room for a block of each");
  const std::uint32_t two_groups[] = {0, 1};
  EXPECT_DEATH(HitQuery(pool, block_hashes, two_groups, limits, hits, found), "a bucket has groups, and there is room for a block of each");
  const std::uint32_t groups[] = {0};
  HitQuery query(pool, block_hashes, groups, limits, hits, found);
  query.assign_null(1);
  EXPECT_DEATH(query.put(1), "the index is below the length set by assign_null");
  EXPECT_DEATH(query.truncate(2), "a hit only becomes shorter");
  EXPECT_DEATH(query.truncate(-1), "a hit only becomes shorter");
}

TEST(InvariantDeathTest, KeysOfALookupAreKnown) {
  BlockPool pool(8, nullptr);
  const BlockHashList no_hashes({}, 4, 4);
  std::vector<std::vector<BlockId>> hits(1);
  std::vector<BlockId> found(1);
  const std::uint32_t groups[] = {0};
  HitQuery query(pool, no_hashes, groups, {.max_tokens = 8, .alignment = 4}, hits, found);
  const MambaSpec mamba = std::get<MambaSpec>(test::mamba(MambaCacheMode::all));
  EXPECT_DEATH(SlidingWindowManager(group_options(), 4, pool).find(query), "known tokens have block hashes");
  EXPECT_DEATH(ChunkedLocalManager(group_options(), 8, pool).find(query), "known tokens have block hashes");
  EXPECT_DEATH(MambaManager(group_options(), mamba, pool).find(query), "known tokens have block hashes");
}

TEST_F(KvInvariantDeathTest, OptionsAreCheckedFirst) {
  options.max_model_len = 0;
  EXPECT_DEATH(make(8, {full()}), "the options are valid");
}

TEST_F(KvInvariantDeathTest, BlocksAndHitsBelongToOneManager) {
  KvCacheManager& kv = make(16, {full(), window(8)});
  TestRequest request("abcdefgh", 4);
  ASSERT_EQ(prefill(request), 0U);
  const std::vector<std::vector<BlockId>> one_list(1);
  TestRequest other("abcdefgh", 4);
  EXPECT_DEATH((void)kv.allocate_slots(other.view(), {.num_new_tokens = 4}, {.groups = one_list}), "the hit belongs to this manager");
  std::uint32_t one_number[1];
  EXPECT_DEATH(kv.common_prefix_blocks(request.blocks, one_number), "there is a number for each group");
  KvCacheManager single(config_of(16, {full()}), options);
  EXPECT_DEATH(single.free(request.blocks), "the blocks belong to this manager");
}

TEST_F(KvInvariantDeathTest, HitsComeFirstAndOnlyWithCaching) {
  KvCacheManager& kv = make(16, {full()});
  leave_cached("abcdefgh");
  TestRequest request("abcdefghi", 4);
  const KvHit hit = kv.find_prefix(request.view());
  ASSERT_EQ(hit.num_tokens, 8U);
  ASSERT_EQ(prefill(request, hit), 0U);
  EXPECT_DEATH((void)kv.allocate_slots(request.view(), {.num_new_tokens = 1}, hit), "a tracked sequence has no prefix hit");
  EXPECT_DEATH((void)kv.allocate_slots(request.view(), {}), "there is a token to allocate for");

  options.enable_caching = false;
  KvCacheManager plain(config_of(16, {full()}), options);
  TestRequest other("abcdefghi", 4);
  EXPECT_DEATH((void)plain.allocate_slots(other.view(), {.num_new_tokens = 1, .num_new_computed_tokens = 8}, hit),
               "there are hits only with prefix caching");
}

TEST_F(KvInvariantDeathTest, OnlyKnownTokensAreLookedUpAndCached) {
  KvCacheManager& kv = make(16, {full()});
  TestRequest request("abcdefgh", 4);
  ASSERT_EQ(prefill(request), 0U);
  EXPECT_DEATH(kv.cache_blocks(request.view(), 9), "only known tokens are cached");
  TestRequest nothing;
  EXPECT_DEATH((void)kv.find_prefix(nothing.view()), "num_tokens > 0");
  TestRequest unhashed("abcdefgh", 4);
  unhashed.hashes.clear();
  EXPECT_DEATH(prefill(unhashed), "a full block of known tokens has a block hash");
}

TEST_F(KvInvariantDeathTest, EventsHaveTheContentOfTheRequest) {
  options.enable_events = true;
  KvCacheManager& kv = make(16, {full()});
  TestRequest request("abcdefgh", 4);
  KvRequest view = request.view();
  view.content = nullptr;
  EXPECT_DEATH((void)kv.allocate_slots(view, {.num_new_tokens = 8}), "events have the content of the request");
  EXPECT_DEATH(KvEventLog(true, 33), "a block hash has at most 32 bytes");
  KvEventLog log(true, 32);
  const std::vector<BlockHash> hashes(1);
  const BlockId blocks[] = {BlockId{1}, BlockId{2}};
  const std::vector<TokenId> four_tokens(4);
  const RequestContent content{.tokens = four_tokens, .lora_name = {}, .multimodal = {}, .cache_salt = {}, .prompt_embeds = {}};
  const StoredBlocks stored{.blocks = blocks, .names = {hashes, 4, 4}, .first_block = 0, .block_size = 4, .content = content};
  EXPECT_DEATH(KvEventLog(false, 32).stored(stored), "events are on");
  EXPECT_DEATH(log.stored(stored), "stored blocks have block hashes");
  const StoredBlocks longer{.blocks = {blocks, 1}, .names = {hashes, 4, 4}, .first_block = 0, .block_size = 8, .content = content};
  EXPECT_DEATH(log.stored(longer), "a full block has known tokens");
}

TEST_F(KvInvariantDeathTest, TrackedSequencesAreCounted) {
  KvCacheManager& kv = make(16, {full()});
  TestRequest request("abcdefgh", 4);
  ASSERT_EQ(prefill(request), 0U);
  const KvBlocks* sequences[] = {&request.blocks};
  kv.check_invariants(sequences);
  EXPECT_DEATH(kv.check_invariants({}), "the reference count equals the number of holders");
  kv.free(request.blocks);
  KvBlocks empty;
  std::uint32_t common[1];
  kv.common_prefix_blocks(empty, common);
  EXPECT_DEATH(kv.check_invariants({}), "the numbers of tracked sequences are correct");
}

TEST(InvariantDeathTest, HashBytesChangeOnlyWrittenBytes) {
  HashBytes bytes;
  bytes.put(little_endian<4>(1));
  EXPECT_DEATH(bytes.overwrite(2, little_endian<4>(1)), "only written bytes are overwritten");
  EXPECT_DEATH(bytes.erase(2, 3), "only written bytes are erased");
}

TEST(InvariantDeathTest, HashingHasABlockSizeAndAnAlgorithmName) {
  const RequestContent content{};
  EXPECT_DEATH(HashInputs(content, 0, 0), "the block size is positive");
  const std::vector<std::uint8_t> long_parent(256);
  HashBytes out;
  EXPECT_DEATH(encode_pickle(long_parent, HashInput{}, out), "the length of a byte string fits into one byte");
  EXPECT_DEATH((void)to_string(static_cast<HashAlgorithm>(99)), "each algorithm has a name");
}

TEST(InvariantDeathTest, EncoderCacheAllocatesOnlyAfterCanAllocate) {
  EXPECT_DEATH(EncoderCache(EncoderCacheMode::shared, -1), "the capacity is not negative");
  EncoderCache cache(EncoderCacheMode::shared, 4);
  const std::vector<MultimodalFeature> features{{"image", PlaceholderRange(0, 3)}, {"sound", PlaceholderRange(4, 2)}};
  const EncoderInputs request{RequestId{1}, features};
  EXPECT_DEATH((void)cache.check_and_reference(request, 2), "the referenced input belongs to the request");
  cache.allocate(request, 0);
  EXPECT_DEATH(cache.allocate(request, 1), "allocate follows a successful can_allocate");
  EncoderCache larger(EncoderCacheMode::shared, 8);
  larger.allocate(request, 0);
  larger.release(request, 0);
  const EncoderInputs other{RequestId{2}, std::span(features).first(1)};
  EXPECT_DEATH(larger.allocate(other, 0), "a cached output is not allocated again");
}

TEST(InvariantDeathTest, SetOrderKeepsEveryValue) {
  SmallIntSetOrder order;
  std::vector<std::uint32_t> values{9, UINT32_MAX};
  EXPECT_DEATH(order.apply(values), "all values are returned");
}

TEST(InvariantDeathTest, CacheGroupsAreMadeOfCheckedLayers) {
  EXPECT_DEATH((void)merge_specs({}), "there is at least one layer to merge");
  EXPECT_DEATH((void)is_uniform_type({}), "there is at least one layer to compare");
  EXPECT_DEATH((void)divide_up(1, 0), "the divisor is positive");
  EXPECT_DEATH((void)max_concurrency({}, {}), "the model has at least one cache group");
  EXPECT_DEATH((void)plan_kv_cache({}, {}, {}), "there are workers, each with its available memory");
  FullAttentionSpec headless;
  headless.num_kv_heads = 0;
  const KvCacheGroup weightless{.layer_names = {"layer"}, .spec = headless, .layer_specs = {}};
  EXPECT_DEATH((void)kv_cache_config({weightless}, 1 << 20, {}), "a block has at least one byte");
  KvCacheGroup uneven{.layer_names = {"a", "b"}, .spec = full(), .layer_specs = {full()}};
  EXPECT_DEATH((void)kv_cache_config({uneven}, 1 << 20, {}), "each layer has a spec");
}

TEST(InvariantDeathTest, ManagersCountBlocksBeforeTheyAllocateThem) {
  BlockPool pool(3, nullptr);
  FullAttentionManager manager(group_options(), pool);
  GroupBlockList list;
  EXPECT_DEATH(manager.allocate(list, {.num_tokens = 12}), "there are enough free blocks");
  pool.allocate();
  const BlockId block = pool.allocate();
  pool.cache(block, BlockKey(some_hash()));
  EXPECT_DEATH(pool.cache(block, BlockKey(some_hash())), "the block has no hash yet");
}

TEST(InvariantDeathTest, BlocksThatAreSetAsideAreNotReferenced) {
  BlockPool pool(4, nullptr);
  pool.set_aside(1);
  EXPECT_DEATH(pool.touch(BlockId{1}), "a block is either free or referenced");
}

TEST(InvariantDeathTest, ABlockListMatchesItsManager) {
  BlockPool pool(8, nullptr);
  FullAttentionManager full(group_options(), pool);
  GroupBlockList given;
  given.blocks = {BlockId{1}};
  EXPECT_DEATH(full.attach(given, {}, 4, 0), "prefix hits come before all other blocks");

  const MambaSpec spec = std::get<MambaSpec>(mamba(MambaCacheMode::align, 2));
  MambaManager states(group_options(), spec, pool);
  GroupBlockList running;
  running.has_running_state = true;
  const GroupDemand demand{.num_tokens = 16, .num_main_model_tokens = 16};
  EXPECT_DEATH(states.allocate(running, demand), "a running state comes before its speculative blocks");
  running.blocks = {kNullBlock, kNullBlock, kNullBlock};
  EXPECT_DEATH(states.allocate(running, demand), "a speculative state has a block");
  running.last_state_block = 3;
  EXPECT_DEATH(states.remove_skipped(running, 40), "the index of the last state is in the list");
}

}  // namespace
}  // namespace quire::test
