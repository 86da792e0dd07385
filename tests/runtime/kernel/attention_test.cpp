#include "runtime/kernel/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "runtime/kernel/kernel_fixtures.h"

namespace quire {
namespace {

using namespace kernel_test;

// One request's cache with a shuffled block table; blocks it does not own, and tokens past its end, hold NaN.
struct Cache {
  Cache(Rng& rng, KvDtype dtype, std::uint32_t block_size, std::uint32_t kv_heads, std::uint32_t head_dim, std::uint32_t length)
      : tokens(length), row(std::size_t{kv_heads} * head_dim) {
    const std::uint32_t num_blocks = (length - 1) / block_size + 1;
    layer.dtype = dtype;
    layer.block_size = block_size;
    layer.num_kv_heads = kv_heads;
    layer.head_dim = head_dim;
    layer.token_stride = head_dim;
    layer.head_stride = std::size_t{block_size} * head_dim;
    layer.block_stride = layer.head_stride * kv_heads + 32;  // room for other layers
    const std::size_t elements = layer.block_stride * (num_blocks + 3);
    const std::size_t bytes = elements * (dtype == KvDtype::f32 ? 4 : 2);
    for (auto* storage : {&keys, &values}) storage->assign(bytes, std::byte{0xFF});
    layer.keys = keys.data();
    layer.values = values.data();
    blocks.resize(num_blocks);
    for (std::uint32_t i = 0; i < num_blocks; ++i) blocks[i] = BlockId{i + 2};
    std::shuffle(blocks.begin(), blocks.end(), rng);
    k = random_floats(rng, tokens * row);
    v = random_floats(rng, tokens * row);
    std::vector<std::uint64_t> slots(tokens);
    for (std::uint32_t t = 0; t < tokens; ++t) slots[t] = std::uint64_t{blocks[t / block_size].value} * block_size + t % block_size;
    select_kernels(KernelIsa::best).write_kv(layer, k.data(), v.data(), row, slots);
    if (dtype == KvDtype::bf16) {
      for (auto* values_of : {&k, &v})
        for (float& value : *values_of) value = bf16_to_float(float_to_bf16(value));
    }
  }

  std::uint32_t tokens;
  std::size_t row;
  PagedKvLayer layer;
  AlignedVector<std::byte> keys, values;
  std::vector<BlockId> blocks;
  std::vector<float> k, v;  // what the cache holds, [token][kv_head][head_dim]
};

struct Queries {
  std::uint32_t group;
  std::uint32_t first_position;
  std::uint32_t rows;
  std::vector<float> q;  // [row][heads][head_dim]
};

// Outputs [row][heads][head_dim], in items of at most `rows_per_item` rows.
std::vector<float> attend(const Kernels& kernels, const Cache& cache, const Queries& queries, std::uint32_t rows_per_item) {
  const std::size_t stride = cache.row * queries.group;
  std::vector<float> out(queries.rows * stride, 777.0F);
  AlignedVector<std::byte> scratch(attention_scratch_bytes(cache.layer.head_dim, queries.group));
  for (std::uint32_t head = 0; head < cache.layer.num_kv_heads; ++head) {
    for (std::uint32_t row = 0; row < queries.rows; row += rows_per_item) {
      AttentionItem item;
      item.q = queries.q.data() + row * stride;
      item.out = out.data() + row * stride;
      item.q_stride = item.out_stride = stride;
      item.rows = std::min(rows_per_item, queries.rows - row);
      item.first_position = queries.first_position + row;
      item.kv_head = head;
      item.group = queries.group;
      item.blocks = cache.blocks.data();
      item.scale = 0.125F;
      kernels.attend(cache.layer, item, scratch);
    }
  }
  return out;
}

// Softmax attention in double precision for one row and query head.
std::vector<double> exact_row(const Cache& cache, const Queries& queries, std::uint32_t row, std::uint32_t head) {
  const std::uint32_t dim = cache.layer.head_dim;
  const float* q = queries.q.data() + row * cache.row * queries.group + std::size_t{head} * dim;
  const std::uint32_t seen = queries.first_position + row + 1;
  std::vector<double> weights(seen);
  for (std::uint32_t t = 0; t < seen; ++t) {
    const float* k = cache.k.data() + t * cache.row + std::size_t{head / queries.group} * dim;
    double dot = 0.0;
    for (std::uint32_t d = 0; d < dim; ++d) dot += static_cast<double>(q[d]) * static_cast<double>(k[d]);
    weights[t] = std::exp(dot * 0.125);
  }
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<double> out(dim, 0.0);
  for (std::uint32_t t = 0; t < seen; ++t) {
    const float* v = cache.v.data() + t * cache.row + std::size_t{head / queries.group} * dim;
    for (std::uint32_t d = 0; d < dim; ++d) out[d] += weights[t] / sum * static_cast<double>(v[d]);
  }
  return out;
}

Queries random_queries(Rng& rng, const Cache& cache, std::uint32_t group, std::uint32_t rows) {
  return {group, cache.tokens - rows, rows, random_floats(rng, rows * cache.row * group)};
}

TEST(Attention, EveryTableGivesTheBitsOfThePlainOneAndTheValueOfDoublePrecision) {
  Rng rng(41);
  for (int round = 0; round < 40; ++round) {
    const KvDtype dtype = round % 2 == 0 ? KvDtype::bf16 : KvDtype::f32;
    const std::uint32_t head_dim = 16 * (1 + random_below(rng, 9));
    const std::uint32_t length = 1 + random_below(rng, 300);
    const std::uint32_t group = 1 + random_below(rng, 5);
    const Cache cache(rng, dtype, 1 + random_below(rng, 40), 1 + random_below(rng, 3), head_dim, length);
    const Queries queries = random_queries(rng, cache, group, 1 + random_below(rng, std::min(length, 70U)));
    const std::vector<float> expected = attend(select_kernels(KernelIsa::reference), cache, queries, 1000);
    for (const Kernels* kernels : fast_kernels()) {
      const std::vector<float> out = attend(*kernels, cache, queries, 1 + random_below(rng, 80));
      ASSERT_TRUE(same_bits(out, expected)) << kernels->name << " dim " << head_dim << " length " << length << " group " << group;
    }
    const std::uint32_t row = random_below(rng, queries.rows);
    const std::uint32_t head = random_below(rng, cache.layer.num_kv_heads * group);
    const std::vector<double> exact = exact_row(cache, queries, row, head);
    for (std::uint32_t d = 0; d < head_dim; ++d)
      ASSERT_NEAR(expected[row * cache.row * group + std::size_t{head} * head_dim + d], exact[d], 5e-6);
  }
  if (fast_kernels().empty()) GTEST_SKIP() << kNothingToCompare;
}

TEST(Attention, ARowDoesNotDependOnTheRowsBesideItNorOnTheBlockSize) {
  for (const Kernels* kernels : available_kernels()) {
    std::vector<float> expected;
    for (const std::uint32_t block_size : {16U, 1U, 7U, 64U, 100U}) {
      Rng rng(42);  // the same tokens in every cache; only the shuffle of the blocks differs
      Rng blocks_rng(block_size);
      Cache cache(blocks_rng, KvDtype::f32, block_size, 2, 64, 200);
      const std::vector<float> k = random_floats(rng, 200 * cache.row);
      const std::vector<float> v = random_floats(rng, 200 * cache.row);
      std::vector<std::uint64_t> slots(200);
      for (std::uint32_t t = 0; t < 200; ++t) slots[t] = std::uint64_t{cache.blocks[t / block_size].value} * block_size + t % block_size;
      kernels->write_kv(cache.layer, k.data(), v.data(), cache.row, slots);
      const Queries queries = random_queries(rng, cache, 3, 150);
      if (expected.empty()) expected = attend(*kernels, cache, queries, 1000);
      for (const std::uint32_t rows_per_item : {1U, 5U, 16U, 33U})
        ASSERT_TRUE(same_bits(attend(*kernels, cache, queries, rows_per_item), expected)) << kernels->name << " " << block_size;
    }
  }
}

// Decoding rows take another way through the fast tables than chunks do; groups and head sizes take different ones.
TEST(Attention, ADecodingRowHasTheBitsOfTheSameRowInAChunk) {
  Rng rng(45);
  for (const KvDtype dtype : {KvDtype::bf16, KvDtype::f32}) {
    for (const std::uint32_t head_dim : {16U, 48U, 64U, 80U, 128U, 240U, 256U}) {
      for (std::uint32_t group = 1; group <= 8; ++group) {
        const Cache cache(rng, dtype, 16, 1, head_dim, 60 + random_below(rng, 80));
        const Queries queries = random_queries(rng, cache, group, 12);
        const std::vector<float> expected = attend(select_kernels(KernelIsa::reference), cache, queries, 12);
        for (const Kernels* kernels : available_kernels()) {
          ASSERT_TRUE(same_bits(attend(*kernels, cache, queries, 1), expected)) << kernels->name << " dim " << head_dim << " of " << group;
          ASSERT_TRUE(same_bits(attend(*kernels, cache, queries, 12), expected)) << kernels->name << " dim " << head_dim << " of " << group;
        }
      }
    }
  }
}

TEST(Attention, LongContextsKeepTheContract) {
  Rng rng(46);
  for (const std::uint32_t length : {64U, 65U, 128U, 1999U, 5000U}) {
    const Cache cache(rng, KvDtype::bf16, 16, 1, 64, length);
    const Queries queries = random_queries(rng, cache, 3, 2);
    const std::vector<float> expected = attend(select_kernels(KernelIsa::reference), cache, queries, 1);
    for (const Kernels* kernels : fast_kernels())
      ASSERT_TRUE(same_bits(attend(*kernels, cache, queries, 1), expected)) << kernels->name << " length " << length;
    const std::vector<double> exact = exact_row(cache, queries, 1, 2);
    for (std::uint32_t d = 0; d < 64; ++d) ASSERT_NEAR(expected[(3 + 2) * 64 + d], exact[d], 5e-6);
  }
  if (fast_kernels().empty()) GTEST_SKIP() << kNothingToCompare;
}

// Chunks whose rows lie on both sides of the end of a segment.
TEST(Attention, ChunksOverTheEndOfASegmentKeepTheContract) {
  Rng rng(55);
  for (const KvDtype dtype : {KvDtype::bf16, KvDtype::f32}) {
    for (const std::uint32_t length : {512U, 513U, 530U, 1040U}) {
      const Cache cache(rng, dtype, 16, 1, 32, length);
      const Queries queries = random_queries(rng, cache, 2, 40);
      const std::vector<float> expected = attend(select_kernels(KernelIsa::reference), cache, queries, 40);
      for (const Kernels* kernels : available_kernels())
        for (const std::uint32_t rows_per_item : {1U, 7U, 40U})
          ASSERT_TRUE(same_bits(attend(*kernels, cache, queries, rows_per_item), expected)) << kernels->name << " length " << length;
    }
  }
}

// However the segments of a row are dealt out, and in whatever order they are made, the row is the same.
TEST(Attention, ARowInPiecesHasTheBitsOfTheWholeRow) {
  Rng rng(56);
  for (const std::uint32_t length : {1U, 500U, 513U, 1024U, 1025U, 2500U}) {
    for (const std::uint32_t group : {1U, 3U, 7U}) {
      const Cache cache(rng, length % 2 == 0 ? KvDtype::bf16 : KvDtype::f32, 16, 1, 48, length);
      const Queries queries = random_queries(rng, cache, group, 1);
      const std::uint32_t num_segments = (length - 1) / kSegmentTokens + 1;
      for (const Kernels* kernels : available_kernels()) {
        const std::vector<float> expected = attend(*kernels, cache, queries, 1);
        for (std::uint32_t per_piece = 1; per_piece <= num_segments; ++per_piece) {
          AlignedVector<std::byte> scratch(attention_scratch_bytes(48, group), std::byte{0xFF});
          std::vector<float> partials(num_segments * attention_partial_floats(48, group), NAN);
          std::vector<float> out(expected.size(), 777.0F);
          AttentionItem item{.q = queries.q.data(), .out = out.data(), .rows = 1, .first_position = length - 1, .group = group};
          item.blocks = cache.blocks.data();
          item.scale = 0.125F;
          item.partials = partials.data();
          for (std::uint32_t end = num_segments; end > 0; end -= std::min(end, per_piece)) {  // the last ones first
            item.first_segment = end - std::min(end, per_piece);
            item.end_segment = end;
            kernels->attend(cache.layer, item, scratch);
          }
          EXPECT_EQ(out[0], 777.0F) << "only the join writes it";
          item.first_segment = 0;
          item.end_segment = num_segments;
          kernels->join_segments(cache.layer, item);
          ASSERT_TRUE(same_bits(out, expected)) << kernels->name << " length " << length << " group " << group << " by " << per_piece;
        }
      }
    }
  }
}

// A row sees positions 0 .. its own: what lies behind in the cache, and the scratch's past, may be anything.
TEST(Attention, LaterKeysAndOldScratchDoNotMatter) {
  Rng rng(47);
  Cache cache(rng, KvDtype::bf16, 16, 1, 64, 150);
  Queries queries = random_queries(rng, cache, 3, 1);
  queries.first_position = 100;
  for (const Kernels* kernels : available_kernels()) {
    const std::vector<float> expected = attend(*kernels, cache, queries, 1);
    Cache spoilt = cache;
    spoilt.layer.keys = spoilt.keys.data();
    spoilt.layer.values = spoilt.values.data();
    std::vector<std::uint64_t> later;
    for (std::uint32_t t = 101; t < 150; ++t) later.push_back(std::uint64_t{cache.blocks[t / 16].value} * 16 + t % 16);
    const std::vector<float> nans(later.size() * 64, NAN);
    kernels->write_kv(spoilt.layer, nans.data(), nans.data(), 64, later);
    EXPECT_TRUE(same_bits(attend(*kernels, spoilt, queries, 1), expected)) << kernels->name;
    AlignedVector<std::byte> scratch(attention_scratch_bytes(64, 3), std::byte{0xFF});  // NaN throughout
    std::vector<float> out(expected.size());
    kernels->attend(cache.layer,
                    {.q = queries.q.data(),
                     .out = out.data(),
                     .q_stride = 192,
                     .out_stride = 192,
                     .rows = 1,
                     .first_position = 100,
                     .group = 3,
                     .blocks = cache.blocks.data(),
                     .scale = 0.125F},
                    scratch);
    EXPECT_TRUE(same_bits(out, expected)) << kernels->name;
  }
}

TEST(Attention, WritesItsOwnHeadsOfItsOwnRowsOnly) {
  Rng rng(48);
  const Cache cache(rng, KvDtype::bf16, 16, 3, 32, 90);
  constexpr std::uint32_t kGroup = 2, kStride = 3 * kGroup * 32 + 10;
  const std::vector<float> q = random_floats(rng, std::size_t{5} * kStride);
  for (const Kernels* kernels : available_kernels()) {
    for (const std::uint32_t rows : {1U, 3U}) {
      std::vector<float> out(std::size_t{5} * kStride, 777.0F);
      AlignedVector<std::byte> scratch(attention_scratch_bytes(32, kGroup));
      kernels->attend(cache.layer,
                      {.q = q.data() + kStride,
                       .out = out.data() + kStride,
                       .q_stride = kStride,
                       .out_stride = kStride,
                       .rows = rows,
                       .first_position = 80,
                       .kv_head = 1,
                       .group = kGroup,
                       .blocks = cache.blocks.data(),
                       .scale = 0.125F},
                      scratch);
      for (std::size_t i = 0; i < out.size(); ++i) {
        const std::size_t row = i / kStride, head = i % kStride / 32;
        const bool own = row >= 1 && row < 1 + rows && (head == 2 || head == 3);
        ASSERT_EQ(out[i] != 777.0F, own) << kernels->name << " row " << row << " head " << head;
      }
    }
  }
}

TEST(AttentionDeath, BrokenShapesStopTheProgram) {
  Rng rng(49);
  Cache cache(rng, KvDtype::bf16, 16, 2, 32, 20);
  AlignedVector<std::byte> scratch(attention_scratch_bytes(32, 1));
  const std::vector<float> q(64);
  std::vector<float> out(64);
  const AttentionItem item{.q = q.data(), .out = out.data(), .rows = 1, .blocks = cache.blocks.data()};
  for (const Kernels* kernels : available_kernels()) {
    AttentionItem other = item;
    other.kv_head = 2;
    EXPECT_DEATH(kernels->attend(cache.layer, other, scratch), "heads");
    other = item;
    other.group = 0;
    EXPECT_DEATH(kernels->attend(cache.layer, other, scratch), "heads");
    EXPECT_DEATH(kernels->attend(cache.layer, item, std::span(scratch).first(100)), "scratch too small");
    std::vector<float> partials(attention_partial_floats(32, 1));
    other = item;
    other.partials = partials.data();
    EXPECT_DEATH(kernels->attend(cache.layer, other, scratch), "segments of one row");
    other.end_segment = 2;
    EXPECT_DEATH(kernels->attend(cache.layer, other, scratch), "segments of one row");
    EXPECT_DEATH(kernels->join_segments(cache.layer, other), "every segment");
    PagedKvLayer odd = cache.layer;
    odd.head_dim = 24;
    EXPECT_DEATH(kernels->attend(odd, item, scratch), "head_dim");
    odd.head_dim = 272;
    EXPECT_DEATH(kernels->attend(odd, item, scratch), "head_dim");
  }
}

TEST(Attention, LargeScoresDoNotOverflow) {
  Rng rng(43);
  const Cache cache(rng, KvDtype::f32, 16, 1, 32, 130);
  Queries queries = random_queries(rng, cache, 2, 130);
  for (float& value : queries.q) value *= 1000.0F;
  const std::vector<float> expected = attend(select_kernels(KernelIsa::reference), cache, queries, 16);
  for (const float value : expected) ASSERT_TRUE(std::isfinite(value));
  for (const Kernels* kernels : fast_kernels()) ASSERT_TRUE(same_bits(attend(*kernels, cache, queries, 16), expected)) << kernels->name;
  if (fast_kernels().empty()) GTEST_SKIP() << kNothingToCompare;
}

// Slot = block * block_size + offset; bf16 rounds to nearest even, f32 keeps the value.
TEST(WriteKv, PutsEveryElementInItsPlace) {
  Rng rng(50);
  for (const KvDtype dtype : {KvDtype::bf16, KvDtype::f32}) {
    const Cache cache(rng, dtype, 8, 3, 32, 50);
    const auto read = [&](const AlignedVector<std::byte>& bytes, std::size_t at) {
      if (dtype == KvDtype::bf16) {
        std::uint16_t bits = 0;
        std::memcpy(&bits, bytes.data() + 2 * at, 2);
        return bf16_to_float(bits);
      }
      float value = 0.0F;
      std::memcpy(&value, bytes.data() + 4 * at, 4);
      return value;
    };
    for (std::size_t t = 0; t < 50; ++t) {
      for (std::size_t i = 0; i < 96; ++i) {
        const std::size_t at =
            cache.blocks[t / 8].value * cache.layer.block_stride + i / 32 * cache.layer.head_stride + t % 8 * 32 + i % 32;
        ASSERT_EQ(read(cache.keys, at), cache.k[t * 96 + i]);  // cache.k has been rounded by half.h
        ASSERT_EQ(read(cache.values, at), cache.v[t * 96 + i]);
      }
    }
  }
}

TEST(WriteKv, TouchesOnlyItsSlots) {
  Rng rng(44);
  const Cache cache(rng, KvDtype::bf16, 16, 2, 16, 40);
  const auto* words = reinterpret_cast<const std::uint16_t*>(cache.keys.data());
  const std::size_t elements = cache.keys.size() / 2;
  const auto untouched = static_cast<std::size_t>(std::count(words, words + elements, std::uint16_t{0xFFFF}));
  EXPECT_EQ(elements - untouched, 40U * 2 * 16);
}

}  // namespace
}  // namespace quire
