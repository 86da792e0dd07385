#include "runtime/memory/kv_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"

namespace quire {
namespace {

constexpr KvShape kSmall{.num_layers = 3, .num_kv_heads = 2, .head_dim = 16, .block_size = 4, .num_blocks = 5};

std::vector<KvShape> all_shapes() {
  std::vector<KvShape> shapes(2, kSmall);
  shapes[0].dtype = KvDtype::bf16;
  shapes[1].dtype = KvDtype::f32;
  return shapes;
}

std::byte* element(const KvCache& cache, std::byte* base, std::uint32_t block, std::uint32_t head, std::uint32_t token, std::uint32_t dim) {
  const std::size_t index = block * cache.block_stride() + head * cache.head_stride() + token * cache.token_stride() + dim;
  return base + index * cache.shape().element_bytes();
}

// Every (layer, part, block, head, token, dim) has bytes of its own, and together they are the whole allocation.
TEST(KvCache, StridesNumberEveryElementOnce) {
  for (const KvShape& shape : all_shapes()) {
    const auto cache = KvCache::create(shape);
    ASSERT_TRUE(cache);
    std::set<std::byte*> seen;
    for (std::uint32_t layer = 0; layer < shape.num_layers; ++layer) {
      for (std::byte* base : {cache->keys(layer), cache->values(layer)}) {
        for (std::uint32_t i = 0; i < shape.num_blocks * shape.block_elements(); ++i) {
          const std::uint32_t dim = i % shape.head_dim, token = i / shape.head_dim % shape.block_size;
          const std::uint32_t head = i / shape.head_dim / shape.block_size % shape.num_kv_heads;
          const auto block = static_cast<std::uint32_t>(i / shape.block_elements());
          EXPECT_TRUE(seen.insert(element(*cache, base, block, head, token, dim)).second);
        }
      }
    }
    EXPECT_EQ(seen.size() * shape.element_bytes(), shape.total_bytes());
    EXPECT_EQ(*seen.begin(), cache->keys(0));
    EXPECT_EQ(*seen.rbegin() - *seen.begin() + shape.element_bytes(), static_cast<std::ptrdiff_t>(shape.total_bytes()));
  }
}

TEST(KvCache, StartsAsZerosOnACacheLine) {
  const auto cache = KvCache::create(kSmall);
  ASSERT_TRUE(cache);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(cache->keys(0)) % 64, 0U);
  for (std::uint64_t i = 0; i < kSmall.total_bytes(); ++i) ASSERT_EQ(cache->keys(0)[i], std::byte{0});
}

// Against a naive cache: one byte string per (layer, part, block).
TEST(KvCache, RandomWritesMatchANaiveCache) {
  for (const KvShape& shape : all_shapes()) {
    auto cache = KvCache::create(shape);
    ASSERT_TRUE(cache);
    Random random(7);
    const std::size_t bytes = shape.block_elements() * shape.element_bytes();
    std::vector<std::vector<std::string>> naive(shape.num_blocks, std::vector<std::string>(2 * shape.num_layers, std::string(bytes, '\0')));
    const auto part = [&](std::uint32_t i, std::uint32_t block) {
      return i % 2 == 0 ? cache->block_keys(i / 2, BlockId{block}) : cache->block_values(i / 2, BlockId{block});
    };
    for (int step = 0; step < 400; ++step) {
      const auto target = static_cast<std::uint32_t>(random.below(shape.num_blocks));
      const auto written = static_cast<std::uint32_t>(random.below(2 * std::uint64_t{shape.num_layers}));
      for (char& c : naive[target][written]) c = static_cast<char>(random.next());
      std::memcpy(part(written, target).data(), naive[target][written].data(), bytes);
      for (std::uint32_t i = 0; i < 2 * shape.num_layers; ++i)
        ASSERT_EQ(std::memcmp(part(i, target).data(), naive[target][i].data(), bytes), 0);
    }
    for (std::uint32_t block = 0; block < shape.num_blocks; ++block)
      for (std::uint32_t i = 0; i < 2 * shape.num_layers; ++i)
        EXPECT_EQ(std::memcmp(part(i, block).data(), naive[block][i].data(), bytes), 0);
  }
}

TEST(KvCache, RefusesEmptyAndBoundlessShapes) {
  KvShape empty = kSmall;
  empty.num_blocks = 0;
  const auto none = KvCache::create(empty);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().field, "num_blocks");
  KvShape huge = kSmall;
  huge.num_layers = huge.num_kv_heads = huge.head_dim = huge.block_size = huge.num_blocks = ~std::uint32_t{0};
  const auto overflow = KvCache::create(huge);
  ASSERT_FALSE(overflow);
  EXPECT_EQ(overflow.error().code, ErrorCode::invalid_argument);
}

TEST(KvCache, MovesWithoutCopying) {
  auto first = KvCache::create(kSmall);
  ASSERT_TRUE(first);
  const std::byte* data = first->keys(0);
  KvCache second = std::move(*first);
  EXPECT_EQ(second.keys(0), data);
  *first = std::move(second);
  EXPECT_EQ(first->keys(0), data);
}

TEST(KvShape, CountsBytesOfABlockOverAllLayers) {
  ModelInfo model;
  model.num_layers = 30;
  model.num_kv_heads = 3;
  model.head_dim = 64;
  EXPECT_EQ(KvShape::of(model, {}).bytes_per_block(), 2U * 30 * 3 * 64 * 16 * 2);
}

}  // namespace
}  // namespace quire
