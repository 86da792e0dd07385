// Tests the worked example of vLLM's design document, and guarantees of the manager for every kind of attention.
#include "core/kv/kv_cache_manager.h"

#include <gtest/gtest.h>

#include "core/kv/kv_support.h"

namespace quire::test {
namespace {

using Ids = std::vector<std::uint32_t>;

// The example has ten blocks of four tokens; every id is one higher because of the null block.
TEST(WorkedExample, ManagesTenBlocksStepByStep) {
  KvCacheManager kv(config_of(11, {full()}), options_of());
  const auto queue = [&] { return values(kv.pool().free_queue().to_vector()); };
  const auto num_cached = [&] { return kv.pool().index().size(); };
  EXPECT_EQ(queue(), (Ids{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));

  // Request 0 is admitted with 15 tokens: three full blocks and one with three tokens.
  TestRequest request0("ABCDEFGHIJKLMNO", 4);
  EXPECT_EQ(kv.find_prefix(request0.view()).num_tokens, 0U);
  ASSERT_EQ(kv.allocate_slots(request0.view(), {.num_new_tokens = 15}), 0U);
  EXPECT_EQ(values(request0.blocks.blocks(0)), (Ids{1, 2, 3, 4}));
  EXPECT_EQ(num_cached(), 3U);
  EXPECT_EQ(queue(), (Ids{5, 6, 7, 8, 9, 10}));

  // The first output fills the fourth block and the second output needs a fifth block.
  request0.num_computed = 15;
  request0.append("P");
  ASSERT_EQ(kv.allocate_slots(request0.view(), {.num_new_tokens = 1}), 0U);
  EXPECT_EQ(num_cached(), 4U);
  EXPECT_TRUE(request0.blocks.new_blocks(0).empty());
  request0.num_computed = 16;
  request0.append("Q");
  ASSERT_EQ(kv.allocate_slots(request0.view(), {.num_new_tokens = 1}), 0U);
  EXPECT_EQ(values(request0.blocks.new_blocks(0)), Ids{5});
  EXPECT_EQ(queue(), (Ids{6, 7, 8, 9, 10}));

  // Request 1 shares ten tokens, of which two blocks are full.
  TestRequest request1("ABCDEFGHIJklmn", 4);
  KvHit hit = kv.find_prefix(request1.view());
  EXPECT_EQ(values(hit.groups[0]), (Ids{1, 2}));
  EXPECT_EQ(hit.num_tokens, 8U);
  ASSERT_EQ(kv.allocate_slots(request1.view(), {.num_new_tokens = 6, .num_new_computed_tokens = 8}, hit), 0U);
  EXPECT_EQ(values(request1.blocks.blocks(0)), (Ids{1, 2, 6, 7}));
  EXPECT_EQ(num_cached(), 5U);
  EXPECT_EQ(queue(), (Ids{8, 9, 10}));
  EXPECT_EQ(kv.pool().ref_count(BlockId{1}), 2U);

  // Request 0 ends. Its private blocks go to the tail, last block first. The shared blocks stay.
  kv.free(request0.blocks);
  EXPECT_EQ(queue(), (Ids{8, 9, 10, 5, 4, 3}));
  EXPECT_EQ(kv.pool().ref_count(BlockId{1}), 1U);

  // Request 1 ends.
  kv.free(request1.blocks);
  EXPECT_EQ(queue(), (Ids{8, 9, 10, 5, 4, 3, 7, 6, 2, 1}));
  EXPECT_EQ(num_cached(), 5U);

  // Request 2 has 29 tokens and three of its blocks are cached. The hit is touched before any eviction, and block 4 is evicted.
  TestRequest request2("ABCDEFGHIJKL0123456789abcdefg", 4);
  hit = kv.find_prefix(request2.view());
  EXPECT_EQ(values(hit.groups[0]), (Ids{1, 2, 3}));
  const SlotDemand demand{.num_new_tokens = 17, .num_new_computed_tokens = 12};
  EXPECT_EQ(kv.missing_for_full_sequence(request2.view(), demand, hit), 0U);
  ASSERT_EQ(kv.allocate_slots(request2.view(), demand, hit), 0U);
  EXPECT_EQ(values(request2.blocks.blocks(0)), (Ids{1, 2, 3, 8, 9, 10, 5, 4}));
  EXPECT_EQ(queue(), (Ids{7, 6}));
  EXPECT_EQ(num_cached(), 3U + 1U + 4U) << "the hit, the third block of request 1 (still in the queue), and four new full blocks";
  EXPECT_EQ(kv.pool().num_evicted_blocks(), 1U);
}

TEST(KvCacheManager, AFailedAllocationTakesNoBlocks) {
  KvCacheManager kv(config_of(4, {full()}), options_of());
  TestRequest first("ABCDEFGHIJKLMNOPQ", 4);
  ASSERT_EQ(kv.allocate_slots(first.view(), {.num_new_tokens = 8}), 0U);
  kv.free(first.blocks);
  const auto queue = kv.pool().free_queue().to_vector();
  TestRequest second("ABCDEFGHIJKLMNOPQ", 4);
  const KvHit hit = kv.find_prefix(second.view());
  EXPECT_EQ(hit.num_tokens, 8U);
  const SlotDemand demand{.num_new_tokens = 9, .num_new_computed_tokens = 8};
  EXPECT_EQ(kv.missing_for_full_sequence(second.view(), demand, hit), 2U)
      << "five blocks are needed; three are free, including the two of the hit";
  EXPECT_EQ(kv.allocate_slots(second.view(), demand, hit), 2U);
  EXPECT_TRUE(second.blocks.blocks(0).empty());
  EXPECT_EQ(kv.pool().free_queue().to_vector(), queue);
}

TEST(KvCacheManager, ExternalTokensBeyondTheModelLengthFailInsteadOfRunningOutOfBlocks) {
  KvCacheOptions options = options_of();
  options.max_model_len = 8;
  KvCacheManager kv(config_of(5, {full()}), options);
  TestRequest request(std::string(30, 'x'), 4);
  EXPECT_EQ(kv.allocate_slots(request.view(), {.num_new_tokens = 1, .num_external_tokens = 20}), 1U);
  EXPECT_EQ(kv.pool().num_free_blocks(), 4U);
}

TEST(KvCacheManager, HashesAndFindsNothingWithoutCaching) {
  KvCacheOptions options = options_of();
  options.enable_caching = false;
  KvCacheManager kv(config_of(20, {full()}), options);
  TestRequest request("ABCDEFGHI", 4);
  ASSERT_EQ(kv.allocate_slots(request.view(), {.num_new_tokens = 9}), 0U);
  EXPECT_EQ(kv.pool().index().size(), 0U);
  EXPECT_TRUE(kv.find_prefix(request.view()).groups.empty());
  EXPECT_EQ(kv.take_prefix_cache_stats().requests, 0U);
}

TEST(KvCacheManager, ModelsWithoutAttentionNeedNoBlocks) {
  KvCacheOptions options = options_of();
  options.enable_caching = false;
  KvCacheManager kv(config_of(1, {}), options);
  TestRequest request("ABCDEFGHI", 4);
  EXPECT_EQ(kv.allocate_slots(request.view(), {.num_new_tokens = 9}), 0U);
  EXPECT_EQ(kv.usage(), 0.0);
  EXPECT_TRUE(kv.reset_prefix_cache());
}

TEST(KvCacheManager, AllocatesBlocksForEncoderTokensOnce) {
  KvCacheOptions options = options_of();
  options.enable_caching = false;
  KvCacheManager kv(config_of(20, {full(), cross()}), options);
  TestRequest request("ABCDE", 4);
  ASSERT_EQ(kv.allocate_slots(request.view(), {.num_new_tokens = 5, .num_encoder_tokens = 9}), 0U);
  EXPECT_EQ(values(request.blocks.blocks(0)), (Ids{1, 2}));
  EXPECT_EQ(values(request.blocks.blocks(1)), (Ids{3, 4, 5}));
  request.num_computed = 5;
  ASSERT_EQ(kv.allocate_slots(request.view(), {.num_new_tokens = 4}), 0U);
  EXPECT_EQ(request.blocks.blocks(0).size(), 3U);
  EXPECT_EQ(request.blocks.blocks(1).size(), 3U);
  kv.free(request.blocks);
  EXPECT_EQ(kv.pool().num_free_blocks(), 19U);
}

TEST(KvCacheManager, ContextParallelismMakesBlocksLarger) {
  KvCacheOptions options = options_of(16);
  options.dcp_world_size = 2;
  options.pcp_world_size = 2;
  KvCacheManager kv(config_of(20, {full(4)}), options);
  EXPECT_EQ(kv.block_size(0), 16U);
  TestRequest request("0123456789abcdef0123456789abcdefx", 16);
  ASSERT_EQ(kv.allocate_slots(request.view(), {.num_new_tokens = 33}), 0U);
  EXPECT_EQ(request.blocks.blocks(0).size(), 3U);
  TestRequest twin("0123456789abcdef0123456789abcdefx", 16);
  EXPECT_EQ(kv.find_prefix(twin.view()).num_tokens, 32U);
}

TEST(KvCacheManagerCheck, NamesTheFieldForConfigurationsThatVllmRefuses) {
  const auto field = [](const KvCacheConfig& config, const KvCacheOptions& options) {
    const auto result = KvCacheManager::check(config, options);
    return result ? std::string("fine") : result.error().field;
  };
  KvCacheOptions options = options_of();
  KvCacheOptions eagle = options;
  eagle.use_eagle = true;
  KvCacheOptions parallel = options_of(8);
  parallel.dcp_world_size = 2;
  EXPECT_EQ(field(config_of(9, {full()}), options), "fine");
  EXPECT_EQ(field(config_of(9, {full(8)}), options), "hash_block_size");
  EXPECT_EQ(field(config_of(9, {full(), full()}), options), "kv.groups");
  EXPECT_EQ(field(config_of(9, {}), options), "kv.groups");
  EXPECT_EQ(field(config_of(9, {full(6), window(8)}), options), "kv.groups[0].block_size");
  EXPECT_EQ(field(config_of(9, {full(), cross()}), options), "kv.groups[1]");
  EXPECT_EQ(field(config_of(9, {full(), chunked(8)}), eagle), "kv.groups[1]");
  EXPECT_EQ(field(config_of(9, {full(8), window(8)}), eagle), "kv.groups[1]");
  EXPECT_EQ(field(config_of(9, {full(), mamba(MambaCacheMode::all)}), eagle), "fine");
  KvCacheOptions dropping = eagle;
  dropping.rules.eagle_drops_once = true;
  EXPECT_EQ(field(config_of(9, {full(), mamba(MambaCacheMode::all)}), dropping), "kv.groups[1]");
  EXPECT_EQ(field(config_of(9, {full(), window(8)}), dropping), "fine");
  EXPECT_EQ(field(config_of(9, {window(8)}), parallel), "kv.groups[0]");
  EXPECT_EQ(field(config_of(9, {full(), mla()}), parallel), "kv.groups");
  EXPECT_EQ(field(config_of(9, {sink(6)}), options), "kv.groups[0].sink_len");
  EXPECT_EQ(field(config_of(9, {sink(0)}), options), "kv.groups[0].sink_len");
  EXPECT_EQ(field(config_of(9, {sink(4)}), options), "fine");
  EXPECT_EQ(field(config_of(9, {window(0)}), options), "kv.groups[0].sliding_window");
  EXPECT_EQ(field(config_of(9, {window(1)}), options), "fine");
  EXPECT_EQ(field(config_of(9, {chunked(0)}), options), "kv.groups[0].attention_chunk_size");
  EXPECT_EQ(field(config_of(9, {chunked(1)}), options), "fine");
  for (const std::uint32_t bytes : {0U, 33U}) {
    KvCacheOptions changed = options;
    changed.hash_bytes = bytes;
    EXPECT_EQ(field(config_of(9, {full()}), changed), "hash_bytes") << bytes;
  }
  for (const std::uint32_t bytes : {1U, 32U}) {
    KvCacheOptions changed = options;
    changed.hash_bytes = bytes;
    EXPECT_EQ(field(config_of(9, {full()}), changed), "fine") << bytes;
  }
  KvCacheOptions unsized = options;
  unsized.hash_block_size = 0;
  EXPECT_EQ(field(config_of(9, {full()}), unsized), "hash_block_size");
  unsized.enable_caching = false;
  EXPECT_EQ(field(config_of(9, {full()}), unsized), "fine");
  KvCacheOptions no_rank = options;
  no_rank.pcp_world_size = 0;
  EXPECT_EQ(field(config_of(9, {full()}), no_rank), "dcp_world_size, pcp_world_size");
  no_rank.max_model_len = 0;
  EXPECT_EQ(field(config_of(9, {full()}), no_rank), "max_model_len");
  EXPECT_EQ(field(config_of(3, {sink(8)}), options), "fine");
  EXPECT_EQ(field(config_of(2, {sink(8)}), options), "kv.num_blocks");
  EXPECT_EQ(field(config_of(0, {full()}), options), "kv.num_blocks");
  EXPECT_EQ(field(config_of(9, {full(0)}), options), "kv.groups[0].block_size");
}

// Only statistics consume the events. Without statistics the events would accumulate forever.
TEST(KvCacheManager, MakesEvictionEventsForStatisticsOnly) {
  for (const bool log_stats : {false, true}) {
    KvCacheOptions options = options_of();
    options.log_stats = log_stats;
    options.residency_sample = 1.0;
    KvCacheManager kv(config_of(3, {full()}), options);
    for (const char* text : {"ABCDEFGH", "IJKLMNOP", "QRSTUVWX"}) {
      TestRequest request(text, 4);
      ASSERT_EQ(kv.allocate_slots(request.view(), {.num_new_tokens = 8}), 0U);
      kv.free(request.blocks);
    }
    std::vector<KvEvictionEvent> events;
    kv.residency().take_events(events);
    EXPECT_EQ(events.size(), log_stats ? 4U : 0U);
    EXPECT_EQ(kv.pool().residency().followed().size(), 2U);
  }
}

}  // namespace
}  // namespace quire::test
