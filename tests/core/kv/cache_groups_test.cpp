#include "core/kv/cache_groups.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace quire {
namespace {

constexpr std::int64_t kGib = std::int64_t{1} << 30;

FullAttentionSpec full(std::uint32_t block_size = 16, std::uint32_t head_size = 32) {
  FullAttentionSpec spec;
  spec.block_size = block_size;
  spec.num_kv_heads = 2;
  spec.head_size = head_size;
  spec.dtype = {"bfloat16", 2};
  return spec;
}

SlidingWindowSpec window(std::uint32_t size, std::uint32_t head_size = 32) {
  SlidingWindowSpec spec;
  static_cast<AttentionShape&>(spec) = full(16, head_size);
  spec.sliding_window = size;
  return spec;
}

LayerSpecs layers(std::initializer_list<std::pair<LayerKvSpec, int>> kinds) {
  LayerSpecs all;
  for (const auto& [spec, count] : kinds)
    for (int i = 0; i < count; ++i) all.push_back({"l" + std::to_string(all.size()), spec});
  return all;
}

KvMemoryOptions options(std::uint32_t max_model_len = 1024) {
  KvMemoryOptions given;
  given.max_model_len = max_model_len;
  given.max_num_batched_tokens = 256;
  return given;
}

std::vector<std::size_t> group_sizes(const LayerSpecs& given, bool unify = false) {
  std::vector<std::size_t> sizes;
  const auto groups = kv_cache_groups(given, unify);  // a variable, because g++ 12 would not keep a temporary for the loop
  for (const KvCacheGroup& group : groups.value()) sizes.push_back(group.layer_names.size());
  return sizes;
}

Result<KvCachePlan> plan_one(const LayerSpecs& given, std::int64_t bytes, const KvMemoryOptions& how = options()) {
  return plan_kv_cache({&given, 1}, {&bytes, 1}, how);
}

TEST(CacheGroups, PutsEqualLayersIntoOneGroup) {
  EXPECT_EQ(group_sizes(layers({{full(), 12}})), std::vector<std::size_t>{12});
}

TEST(CacheGroups, AcceptsAnExplicitHeadSizeOfValues) {
  FullAttentionSpec written = full();
  written.head_size_v = written.head_size;
  EXPECT_EQ(group_sizes(layers({{full(), 3}, {written, 2}})), std::vector<std::size_t>{5});
}

TEST(CacheGroups, SplitsPatternsIntoGroupsOfEqualSize) {
  EXPECT_EQ(group_sizes(layers({{full(), 10}, {window(64), 20}})), (std::vector<std::size_t>{10, 10, 10}));
  EXPECT_EQ(group_sizes(layers({{full(), 2}, {window(64), 3}})), (std::vector<std::size_t>{2, 2, 1}));
  EXPECT_EQ(group_sizes(layers({{full(), 13}, {window(64), 12}})), (std::vector<std::size_t>{13, 12}))
      << "nearly equal groups are padded instead";
}

TEST(CacheGroups, PutsNeighboursIntoDifferentGroups) {
  const auto groups = kv_cache_groups(layers({{full(), 2}, {window(64), 4}}), false).value();
  EXPECT_EQ(groups[1].layer_names, (std::vector<std::string>{"l2", "l4"}));
  EXPECT_EQ(groups[2].layer_names, (std::vector<std::string>{"l3", "l5"}));
}

TEST(CacheGroups, KeepsTheSpecsOfOneTypeWithDifferentPageSizes) {
  const auto groups = kv_cache_groups(layers({{full(16, 32), 2}, {full(16, 64), 1}}), false).value();
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(groups[0].layer_specs.size(), 3U);
  EXPECT_EQ(page_size_bytes(groups[0]), 2 * 4096U + 8192U);
}

TEST(CacheGroups, GivesSmallerPagesMoreTokens) {
  const auto groups = kv_cache_groups(layers({{full(16, 64), 1}, {window(64, 32), 1}}), false).value();
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(block_size_of(groups[0].spec), 16U);
  EXPECT_EQ(block_size_of(groups[1].spec), 32U);
}

TEST(CacheGroups, RefusesPagesThatCannotBecomeEqual) {
  const auto groups = kv_cache_groups(layers({{full(16, 48), 1}, {window(64, 32), 1}}), false);
  ASSERT_FALSE(groups);
  EXPECT_EQ(groups.error().field, "l1");
  EXPECT_FALSE(groups.error().remedy.empty());
}

TEST(CacheGroups, TreatsWindowsAsFullAttentionWithoutTheHybridManager) {
  const auto groups = kv_cache_groups(layers({{full(), 2}, {window(64), 3}}), true).value();
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(std::get<FullAttentionSpec>(groups[0].spec).sliding_window, 64U);
  const auto refused = kv_cache_groups(layers({{full(), 2}, {window(64), 1}, {window(128), 1}}), true);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().field, "sliding_window");
  const auto no_full = kv_cache_groups(layers({{window(64), 1}, {window(128), 1}}), true);
  ASSERT_FALSE(no_full);
  EXPECT_EQ(no_full.error().field, "disable_hybrid_kv_cache_manager");
}

TEST(CacheGroups, TreatsChunksAsFullAttentionWithoutTheHybridManager) {
  ChunkedLocalSpec chunk;
  static_cast<AttentionShape&>(chunk) = full();
  chunk.attention_chunk_size = 64;
  const auto groups = kv_cache_groups(layers({{full(), 2}, {chunk, 3}}), true).value();
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(std::get<FullAttentionSpec>(groups[0].spec).attention_chunk_size, 64U);
  EXPECT_FALSE(std::get<FullAttentionSpec>(groups[0].spec).sliding_window.has_value());
}

TEST(CacheGroups, RefusesInvalidSpecs) {
  const auto field_of = [](LayerKvSpec spec) {
    const auto checked = check_layers({{"good", full()}, {"bad", std::move(spec)}});
    return checked ? "" : checked.error().field;
  };
  EXPECT_EQ(field_of(full()), "");
  EXPECT_EQ(field_of(full(0)), "bad");
  EXPECT_EQ(field_of(full(16, 0)), "bad");
  EXPECT_EQ(field_of(full(UINT32_MAX, UINT32_MAX)), "bad");
  EXPECT_EQ(field_of(window(0)), "bad");
  FullAttentionSpec padded = full();
  padded.page_size_padded = 4095;
  EXPECT_EQ(field_of(padded), "bad");
  MambaSpec mamba;
  mamba.shapes = {{2}, {4}};
  mamba.dtypes = {{"float32", 4}};
  EXPECT_EQ(field_of(mamba), "bad");
  EXPECT_FALSE(check_layers({{"twice", full()}, {"twice", full()}}));
}

TEST(CachePlan, SharesOneTensorBetweenLayersOfDifferentGroups) {
  const auto plan = plan_one(layers({{full(), 2}, {window(64), 3}}), 1 << 20).value();
  const KvCacheConfig& config = plan.workers.at(0);
  EXPECT_EQ(config.num_blocks, (1U << 20) / 4096 / 2);
  ASSERT_EQ(config.tensors.size(), 2U);
  EXPECT_EQ(config.tensors[0].shared_by, (std::vector<std::string>{"l0", "l2", "l3"}));
  EXPECT_EQ(config.tensors[1].shared_by, (std::vector<std::string>{"l1", "l4"}));
  EXPECT_EQ(config.tensors[0].size, 4096U * config.num_blocks);
}

TEST(CachePlan, GivesAModelWithoutACacheOnlyTheNullBlock) {
  const auto plan = plan_one({}, kGib).value();
  EXPECT_EQ(plan.workers.at(0).num_blocks, 1U);
  EXPECT_TRUE(plan.workers.at(0).tensors.empty());
}

TEST(CachePlan, RefusesALengthThatDoesNotFitAndSuggestsOneThatFits) {
  // A request of 1,024 tokens needs 64 blocks of 4096 bytes in each of 2 layers.
  EXPECT_TRUE(plan_one(layers({{full(), 2}}), 64 * 2 * 4096));
  const auto refused = plan_one(layers({{full(), 2}}), 63 * 2 * 4096);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::too_large);
  EXPECT_EQ(refused.error().field, "max_model_len");
  EXPECT_NE(refused.error().remedy.find("1008"), std::string::npos) << refused.error().remedy;
  const std::string error = plan_one(layers({{full(), 2}}), 3 * kGib, options(8 * 1024 * 1024)).error().to_string();
  EXPECT_NE(error.find("needs 4.00 GiB of KV cache, but 3.00 GiB are available"), std::string::npos) << error;
  EXPECT_EQ(plan_one(layers({{full(), 2}}), 0).error().field, "kv_cache_memory");
}

// With 240 tokens in a step a window of 17 sees 256 tokens, and a window of 18 sees one more. Neither must begin at a block boundary.
TEST(CachePlan, CountsOneMoreBlockForAWindowOfOneMoreToken) {
  KvMemoryOptions wide = options(4096);
  wide.max_num_batched_tokens = 240;
  const auto fits = [&](std::uint32_t size, std::int64_t num_blocks) {
    return plan_one(layers({{window(size), 1}}), num_blocks * 4096, wide).has_value();
  };
  EXPECT_TRUE(fits(17, 17));
  EXPECT_FALSE(fits(18, 17));
  EXPECT_TRUE(fits(18, 18));
}

TEST(CachePlan, FitsTheLengthToTheMemoryWhenEnabled) {
  KvMemoryOptions fit = options();
  fit.auto_fit_max_model_len = true;
  EXPECT_EQ(plan_one(layers({{full(), 2}}), 63 * 2 * 4096, fit)->max_model_len, 1008U);
  EXPECT_EQ(plan_one(layers({{full(), 2}}), kGib, fit)->max_model_len, 1024U);
  EXPECT_FALSE(plan_one(layers({{full(), 2}}), 4096, fit));
}

// The blocks have one token of 256 bytes.
TEST(CachePlan, SuggestsALengthOnlyIfOneTokenFits) {
  EXPECT_EQ(plan_one(layers({{full(1), 1}}), 256).error().remedy, "increase the memory for the KV cache or set max_model_len to at most 1");
  EXPECT_EQ(plan_one(layers({{full(1), 1}}), 255).error().remedy, "increase the memory for the KV cache");
}

TEST(CachePlan, RefusesAnyLengthWithoutMemory) {
  MlaAttentionSpec byte;
  byte.block_size = byte.num_kv_heads = byte.head_size = 1;
  byte.dtype = {"int8", 1};
  KvMemoryOptions fit = options();
  fit.auto_fit_max_model_len = true;
  const auto planned = [&](std::int64_t bytes) { return plan_one(layers({{byte, 1}}), bytes, fit); };
  for (const std::int64_t bytes : {0, -1, -1000}) {
    ASSERT_FALSE(planned(bytes)) << bytes;
    EXPECT_EQ(planned(bytes).error().field, "max_model_len") << bytes;
  }
  ASSERT_TRUE(planned(1)) << planned(1).error().to_string();
  EXPECT_EQ(planned(1)->max_model_len, 1U);
}

TEST(CachePlan, LimitsTheNumberOfBlocksTo32Bits) {
  constexpr std::int64_t kMost = UINT32_MAX;
  const auto plan = plan_one(layers({{full(), 1}}), kMost * 4096);
  ASSERT_TRUE(plan) << plan.error().to_string();
  EXPECT_EQ(plan->workers.at(0).num_blocks, UINT32_MAX);
  const auto refused = plan_one(layers({{full(), 1}}), (kMost + 1) * 4096);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().field, "kv_cache_memory");
  EXPECT_EQ(refused.error().code, ErrorCode::too_large);
}

TEST(CachePlan, GivesAllWorkersTheSmallestNumberOfBlocks) {
  const LayerSpecs all = layers({{full(), 2}});
  const std::array<LayerSpecs, 2> workers{all, all};
  const std::array<std::int64_t, 2> bytes{1 << 20, 1 << 21};
  const auto plan = plan_kv_cache(workers, bytes, options()).value();
  EXPECT_EQ(plan.workers[0], plan.workers[1]);
  EXPECT_EQ(plan.workers[1].num_blocks, 128U);
  EXPECT_EQ(plan.workers[1].tensors[0].size, 128U * 4096);
}

TEST(CachePlan, RefusesRanksThatDisagreeAboutALayer) {
  const std::array<LayerSpecs, 2> workers{layers({{full(16), 1}}), layers({{full(32), 1}})};
  const std::array<std::int64_t, 2> bytes{kGib, kGib};
  const auto plan = plan_kv_cache(workers, bytes, options());
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().field, "l0");
}

TEST(CachePlan, AddsLayersThatShareACacheToItsGroup) {
  KvCacheConfig config = plan_one(layers({{full(), 1}, {window(64), 1}}), kGib)->workers.at(0);
  const std::vector<std::pair<std::string, std::string>> shared{{"reader", "l1"}};
  ASSERT_TRUE(add_shared_layers(config, shared));
  EXPECT_EQ(config.groups[1].layer_names, (std::vector<std::string>{"l1", "reader"}));
  EXPECT_EQ(config.tensors.size(), 1U) << "the layer has no separate memory";
  const std::vector<std::pair<std::string, std::string>> lost{{"reader 2", "nowhere"}};
  EXPECT_EQ(add_shared_layers(config, lost).error().field, "reader 2");
}

TEST(CachePlan, GivesTheSchedulerOneSpecPerGroup) {
  const KvCacheConfig worker = plan_one(layers({{full(16, 32), 1}, {full(16, 64), 1}}), kGib)->workers.at(0);
  const KvCacheConfig scheduler = scheduler_kv_cache_config(worker);
  EXPECT_TRUE(scheduler.groups.at(0).layer_specs.empty());
  EXPECT_EQ(std::get<FullAttentionSpec>(scheduler.groups.at(0).spec).head_size, 32U);
  EXPECT_EQ(scheduler.num_blocks, worker.num_blocks);
}

TEST(CachePlan, ReportsCapacityInTokensAndRequests) {
  const KvCacheConfig config = plan_one(layers({{full(), 2}, {window(64), 2}}), 400 * 2 * 4096)->workers.at(0);
  ASSERT_EQ(config.num_blocks, 400U);
  EXPECT_EQ(num_cache_tokens(config, options()), 3200U);
  EXPECT_EQ(num_cache_tokens(KvCacheConfig{}, KvMemoryOptions{}), 0U) << "a config without a cache has no tokens";
  // A request needs 64 blocks of full attention and ceil(319 / 16) + 1 blocks of the window.
  EXPECT_DOUBLE_EQ(max_concurrency(config, options()), 400.0 / (64 + 21));
}

// A block can have at most 65537 * 65535 tokens.
TEST(CacheGroups, GrowsSmallPagesUpTo32BitTokenCounts) {
  const auto grown = [](std::uint32_t num_heads) {
    FullAttentionSpec large;
    large.block_size = 65537;
    large.num_kv_heads = num_heads;
    large.head_size = 1;
    large.dtype = {"int8", 1};
    SlidingWindowSpec small;
    static_cast<AttentionShape&>(small) = large;
    small.num_kv_heads = 1;
    small.sliding_window = 64;
    return kv_cache_groups(layers({{large, 1}, {small, 1}}), false);
  };
  const auto groups = grown(65535);
  ASSERT_TRUE(groups.has_value()) << groups.error().to_string();
  EXPECT_EQ(block_size_of(groups->at(1).spec), UINT32_MAX);
  const auto refused = grown(65536);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().field, "l1");
}

}  // namespace
}  // namespace quire
