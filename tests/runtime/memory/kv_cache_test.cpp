#include "runtime/memory/kv_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "support/kv_layouts.h"

namespace quire {
namespace {

constexpr std::uint32_t kBlocks = 6;

// Makes a model with three layers; with windows it has two groups that share the first tensor.
ModelInfo small_model(std::vector<std::uint32_t> windows = {}) {
  ModelInfo model;
  model.num_layers = 3;
  model.num_kv_heads = 2;
  model.head_dim = 16;
  model.sliding_windows = std::move(windows);
  return model;
}

std::vector<KvLayout> all_layouts() {
  std::vector<KvLayout> layouts;
  for (const KvDtype dtype : {KvDtype::bf16, KvDtype::f32})
    for (const std::uint32_t kernel_block_size : {4U, 2U, 1U})
      layouts.push_back(test::kv_layout_of(
          small_model(), {.block_size = 4, .num_blocks = kBlocks, .dtype = dtype, .kernel_block_size = kernel_block_size}));
  return layouts;
}

// Returns an element of a token of a block as the core counts them.
std::byte* element(const KvCache& cache, std::uint32_t layer, bool values, std::uint32_t block, std::uint32_t head, std::uint32_t token,
                   std::uint32_t dim) {
  const KvLayerLayout& l = cache.layout().layers[layer];
  const KvGroupLayout& group = cache.layout().groups[l.group];
  const std::uint32_t kernel_block = block * group.kernel_blocks_per_block() + token / group.kernel_block_size;
  const std::size_t index = kernel_block * l.block_stride + head * l.head_stride + token % group.kernel_block_size * l.token_stride + dim;
  return (values ? cache.values(layer) : cache.keys(layer)) + index * cache.layout().element_bytes();
}

// Every (layer, part, block, head, token, dim) has separate bytes in its block's page, and together they fill the allocation.
TEST(KvCache, StridesCoverEveryElementOnce) {
  for (const KvLayout& layout : all_layouts()) {
    const auto cache = KvCache::create(layout);
    ASSERT_TRUE(cache);
    std::set<std::byte*> seen;
    for (std::uint32_t layer = 0; layer < 3; ++layer) {
      for (std::uint32_t i = 0; i < 2 * kBlocks * 2 * 4 * 16; ++i) {
        const std::uint32_t dim = i % 16, token = i / 16 % 4, head = i / 64 % 2, block = i / 128 % kBlocks;
        std::byte* place = element(*cache, layer, i / 128 / kBlocks == 1, block, head, token, dim);
        EXPECT_TRUE(seen.insert(place).second);
        const auto page = cache->page(layer, BlockId{block});
        EXPECT_TRUE(page.data() <= place && place < page.data() + page.size());
      }
    }
    EXPECT_EQ(seen.size() * layout.element_bytes(), layout.total_bytes());
    EXPECT_EQ(*seen.begin(), cache->keys(0));
    EXPECT_EQ(*seen.rbegin() - *seen.begin() + layout.element_bytes(), static_cast<std::ptrdiff_t>(layout.total_bytes()));
  }
}

TEST(KvCache, StartsZeroedOnACacheLine) {
  const auto cache = KvCache::create(all_layouts()[0]);
  ASSERT_TRUE(cache);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(cache->keys(0)) % 64, 0U);
  for (std::uint64_t i = 0; i < cache->layout().total_bytes(); ++i) ASSERT_EQ(cache->keys(0)[i], std::byte{0});
}

// The naive cache is one byte string per page.
TEST(KvCache, RandomWritesMatchANaiveCache) {
  for (const KvLayout& layout : all_layouts()) {
    auto cache = KvCache::create(layout);
    ASSERT_TRUE(cache);
    Random random(7);
    std::vector<std::vector<std::string>> naive(kBlocks, std::vector<std::string>(3, std::string(layout.page_bytes[0], '\0')));
    for (int step = 0; step < 400; ++step) {
      const auto block = static_cast<std::uint32_t>(random.below(kBlocks));
      const auto tensor = static_cast<std::uint32_t>(random.below(3));
      if (random.chance(0.1)) {
        cache->zero(BlockId{block});
        for (std::string& page : naive[block]) page.assign(page.size(), '\0');
      } else {
        for (char& c : naive[block][tensor]) c = static_cast<char>(random.next());
        std::memcpy(cache->page(tensor, BlockId{block}).data(), naive[block][tensor].data(), layout.page_bytes[tensor]);
      }
      for (std::uint32_t b = 0; b < kBlocks; ++b)
        for (std::uint32_t t = 0; t < 3; ++t)
          ASSERT_EQ(std::memcmp(cache->page(t, BlockId{b}).data(), naive[b][t].data(), layout.page_bytes[t]), 0);
    }
  }
}

// Layers of different groups share a tensor, layers of one group never do.
TEST(KvCache, GroupsShareTensors) {
  const KvLayout layout = test::kv_layout_of(small_model({8, 0, 8}), {.block_size = 4, .num_blocks = kBlocks});
  ASSERT_EQ(layout.groups.size(), 2U);
  EXPECT_EQ(layout.groups[0].sliding_window(), 8U);
  EXPECT_EQ(layout.groups[0].layers, (std::vector<std::uint32_t>{0, 2}));
  EXPECT_EQ(layout.groups[1].sliding_window(), 0U);
  EXPECT_EQ(layout.page_bytes.size(), 2U);
  EXPECT_EQ(layout.group_block_bytes(1) * 2, layout.group_block_bytes(0));
  const auto cache = KvCache::create(layout);
  ASSERT_TRUE(cache);
  EXPECT_EQ(cache->keys(0), cache->keys(1));
  EXPECT_NE(cache->keys(0), cache->keys(2));
}

TEST(KvCache, RefusesEmptyAndOverflowingLayouts) {
  const auto none = KvCache::create({});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().field, "num_blocks");
  KvLayout huge = all_layouts()[0];
  huge.num_blocks = ~std::uint32_t{0};
  huge.page_bytes[0] = ~std::uint64_t{0} / 2;
  const auto overflow = KvCache::create(huge);
  ASSERT_FALSE(overflow);
  EXPECT_EQ(overflow.error().code, ErrorCode::invalid_argument);
}

TEST(KvCache, MovesWithoutCopying) {
  auto first = KvCache::create(all_layouts()[0]);
  ASSERT_TRUE(first);
  const std::byte* data = first->keys(0);
  KvCache second = std::move(*first);
  EXPECT_EQ(second.keys(0), data);
  *first = std::move(second);
  EXPECT_EQ(first->keys(0), data);
}

TEST(KvLayoutDeath, RefusesContradictoryConfigs) {
  const KvCacheConfig config = test::kv_config_of(small_model({8, 0, 8}), {.block_size = 4, .num_blocks = kBlocks});
  KvCacheConfig other = config;
  other.groups[0].layer_names[1] = "3";
  EXPECT_DEATH(make_kv_layout(other, KvDtype::bf16), "the name of a layer is its number");
  other = config;
  other.groups[0].layer_names[1] = "1";
  EXPECT_DEATH(make_kv_layout(other, KvDtype::bf16), "in one group");
  other = config;
  other.tensors.pop_back();
  EXPECT_DEATH(make_kv_layout(other, KvDtype::bf16), "a tensor has one page per block");
  EXPECT_DEATH(make_kv_layout(config, KvDtype::f32), "the element type of the cache");
  EXPECT_DEATH(make_kv_layout(config, KvDtype::bf16, std::vector{4U, 3U}), "kernel blocks");
  other = config;
  other.tensors[0].size /= 2;
  EXPECT_DEATH(make_kv_layout(other, KvDtype::bf16), "keys and values of its tokens");
  other = config;
  other.groups[1].spec = ChunkedLocalSpec{};
  EXPECT_DEATH(make_kv_layout(other, KvDtype::bf16), "sliding-window attention");
}

}  // namespace
}  // namespace quire
