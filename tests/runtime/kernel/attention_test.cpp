#include "runtime/kernel/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "runtime/kernel/attention_fixtures.h"

namespace quire {
namespace {

using namespace kernel_test;

// Returns every kernel table, with products of single numbers and in pairs.
std::vector<std::pair<const Kernels*, bool>> each_way() {
  std::vector<std::pair<const Kernels*, bool>> ways;
  for (const Kernels* kernels : available_kernels())
    for (const bool in_pairs : {false, true}) ways.emplace_back(kernels, in_pairs);
  return ways;
}

TEST(Attention, EveryTableHasTheBitsOfTheReferenceAndIsCloseToDoublePrecision) {
  Rng rng(41);
  for (int round = 0; round < 40; ++round) {
    const Kind kind = any_kind(rng);
    const std::uint32_t head_dim = 16 * (1 + random_below(rng, 9));
    const std::uint32_t length = 1 + random_below(rng, 300);
    const std::uint32_t group = 1 + random_below(rng, 5);
    const Cache cache(rng, kind, 1 + random_below(rng, 40), 1 + random_below(rng, 3), head_dim, length);
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
      ASSERT_NEAR(expected[row * cache.row * group + std::size_t{head} * head_dim + d], exact[d], cache.tolerance());
  }
  if (fast_kernels().empty()) GTEST_SKIP() << kNothingToCompare;
}

TEST(Attention, ARowDoesNotDependOnOtherRowsOrOnTheBlockSize) {
  for (const Kernels* kernels : available_kernels()) {
    std::vector<float> expected;
    for (const std::uint32_t block_size : {16U, 1U, 7U, 64U, 100U}) {
      Rng rng(42);  // the same tokens in every cache; only the shuffle of the blocks differs
      Rng blocks_rng(block_size);
      Cache cache(blocks_rng, Kind{KvDtype::f32}, block_size, 2, 64, 200);
      const std::vector<float> k = random_floats(rng, 200 * cache.row);
      const std::vector<float> v = random_floats(rng, 200 * cache.row);
      std::vector<std::int64_t> slots(200);
      for (std::uint32_t t = 0; t < 200; ++t) slots[t] = std::int64_t{cache.blocks[t / block_size].value} * block_size + t % block_size;
      kernels->write_kv(cache.layer, k.data(), v.data(), cache.row, slots);
      const Queries queries = random_queries(rng, cache, 3, 150);
      if (expected.empty()) expected = attend(*kernels, cache, queries, 1000);
      for (const std::uint32_t rows_per_item : {1U, 5U, 16U, 33U})
        ASSERT_TRUE(same_bits(attend(*kernels, cache, queries, rows_per_item), expected)) << kernels->name << " " << block_size;
    }
  }
}

// Fast tables compute decode rows on another path than chunks. Groups and head sizes select different paths, too.
TEST(Attention, ADecodeRowHasTheBitsOfTheSameRowInAChunk) {
  Rng rng(45);
  for (const Kind kind : kKinds) {
    for (const std::uint32_t head_dim : {16U, 48U, 64U, 80U, 128U, 240U, 256U}) {
      for (std::uint32_t group = 1; group <= 8; ++group) {
        const Cache cache(rng, kind, 16, 1, head_dim, 60 + random_below(rng, 80));
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
    const Cache cache(rng, length == 1999 ? Kind{KvDtype::int8} : Kind{KvDtype::bf16, length > 128}, 16, 1, 64, length);
    const Queries queries = random_queries(rng, cache, 3, 2);
    const std::vector<float> expected = attend(select_kernels(KernelIsa::reference), cache, queries, 1);
    for (const Kernels* kernels : fast_kernels())
      ASSERT_TRUE(same_bits(attend(*kernels, cache, queries, 1), expected)) << kernels->name << " length " << length;
    const std::vector<double> exact = exact_row(cache, queries, 1, 2);
    for (std::uint32_t d = 0; d < 64; ++d) ASSERT_NEAR(expected[(3 + 2) * 64 + d], exact[d], cache.tolerance());
  }
  if (fast_kernels().empty()) GTEST_SKIP() << kNothingToCompare;
}

// The rows of these chunks lie on both sides of a segment's end.
TEST(Attention, ChunksAcrossTheEndOfASegmentKeepTheContract) {
  Rng rng(55);
  for (const Kind kind : kKinds) {
    for (const std::uint32_t length : {512U, 513U, 530U, 1040U}) {
      const Cache cache(rng, kind, 16, 1, 32, length);
      const Queries queries = random_queries(rng, cache, 2, 40);
      const std::vector<float> expected = attend(select_kernels(KernelIsa::reference), cache, queries, 40);
      for (const Kernels* kernels : available_kernels())
        for (const std::uint32_t rows_per_item : {1U, 7U, 40U})
          ASSERT_TRUE(same_bits(attend(*kernels, cache, queries, rows_per_item), expected)) << kernels->name << " length " << length;
    }
  }
}

// The row does not depend on how its segments are distributed or in which order they are computed.
TEST(Attention, ARowComputedInPiecesHasTheBitsOfTheWholeRow) {
  Rng rng(56);
  for (const auto& [length, window] :
       {std::pair{1U, 0U}, {500U, 0U}, {513U, 0U}, {1024U, 0U}, {1025U, 0U}, {2500U, 0U}, {513U, 2U}, {2500U, 1000U}}) {
    for (const std::uint32_t group : {1U, 3U, 7U}) {
      const Cache cache(rng, any_kind(rng), 16, 1, 48, length);
      Queries queries = random_queries(rng, cache, group, 1);
      queries.window = window;
      if (length % 2 == 1) queries.sinks = random_floats(rng, group);
      const std::uint32_t num_segments = (length - 1) / kSegmentTokens + 1;
      const std::uint32_t first_segment = window_begin(window, length - 1) / kSegmentTokens;
      for (const Kernels* kernels : available_kernels()) {
        const std::vector<float> expected = attend(*kernels, cache, queries, 1);
        for (std::uint32_t per_piece = 1; per_piece <= num_segments; ++per_piece) {
          AlignedVector<std::byte> scratch(attention_scratch_bytes(48, group), std::byte{0xFF});
          std::vector<float> partials(num_segments * attention_partial_floats(48, group), NAN);
          std::vector<float> out(expected.size(), 777.0F);
          AttentionItem item{.q = queries.q.data(), .out = out.data(), .rows = 1, .first_position = length - 1, .group = group};
          item.blocks = cache.blocks.data();
          item.scale = 0.125F;
          item.window = window;
          item.sinks = queries.sinks.empty() ? nullptr : queries.sinks.data();
          item.in_pairs = queries.in_pairs;
          item.partials = partials.data();
          for (std::uint32_t end = num_segments; end > first_segment;
               end -= std::min(end - first_segment, per_piece)) {  // the last segments first
            item.first_segment = end - std::min(end - first_segment, per_piece);
            item.end_segment = end;
            kernels->attend(cache.layer, item, scratch);
          }
          EXPECT_EQ(out[0], 777.0F) << "only the merge writes the output";
          item.first_segment = first_segment;
          item.end_segment = num_segments;
          kernels->join_segments(cache.layer, item);
          ASSERT_TRUE(same_bits(out, expected)) << kernels->name << " length " << length << " group " << group << " by " << per_piece;
        }
      }
    }
  }
}

// A row attends to positions 0 to its own. Later cache entries and old scratch contents may be anything.
TEST(Attention, LaterKeysAndOldScratchDoNotMatter) {
  Rng rng(47);
  Cache cache(rng, Kind{KvDtype::bf16}, 16, 1, 64, 150);
  Queries queries = random_queries(rng, cache, 3, 1);
  queries.first_position = 100;
  for (const auto& [kernels, in_pairs] : each_way()) {
    queries.in_pairs = in_pairs;
    const std::vector<float> expected = attend(*kernels, cache, queries, 1);
    Cache changed = cache;
    changed.layer.keys = changed.keys.data();
    changed.layer.values = changed.values.data();
    std::vector<std::int64_t> later;
    for (std::uint32_t t = 101; t < 150; ++t) later.push_back(std::int64_t{cache.blocks[t / 16].value} * 16 + t % 16);
    const std::vector<float> nans(later.size() * 64, NAN);
    kernels->write_kv(changed.layer, nans.data(), nans.data(), 64, later);
    EXPECT_TRUE(same_bits(attend(*kernels, changed, queries, 1), expected)) << kernels->name;
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
                     .scale = 0.125F,
                     .in_pairs = queries.in_pairs},
                    scratch);
    EXPECT_TRUE(same_bits(out, expected)) << kernels->name;
  }
}

TEST(Attention, WritesOnlyTheHeadsAndRowsOfTheItem) {
  Rng rng(48);
  const Cache cache(rng, Kind{KvDtype::bf16}, 16, 3, 32, 90);
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

TEST(AttentionDeath, InvalidShapesAbortTheProgram) {
  Rng rng(49);
  Cache cache(rng, Kind{KvDtype::bf16}, 16, 2, 32, 20);
  AlignedVector<std::byte> scratch(attention_scratch_bytes(32, 1));
  const std::vector<float> q(64);
  std::vector<float> out(64);
  const AttentionItem item{.q = q.data(), .out = out.data(), .rows = 1, .blocks = cache.blocks.data()};
  for (const Kernels* kernels : available_kernels()) {
    AttentionItem other = item;
    other.kv_head = 2;
    EXPECT_DEATH(kernels->attend(cache.layer, other, scratch), "the KV head exists");
    other = item;
    other.group = 0;
    EXPECT_DEATH(kernels->attend(cache.layer, other, scratch), "the KV head exists");
    other = item;
    other.in_pairs = true;
    PagedKvLayer floats = cache.layer;
    floats.dtype = KvDtype::f32;
    EXPECT_DEATH(kernels->attend(floats, other, scratch), "in pairs only if the cache is bf16");
    EXPECT_DEATH(kernels->attend(cache.layer, item, std::span(scratch).first(100)), "the scratch buffer is large enough");
    std::vector<float> partials(attention_partial_floats(32, 1));
    other = item;
    other.partials = partials.data();
    EXPECT_DEATH(kernels->attend(cache.layer, other, scratch), "segments of one row");
    other.window = 1;
    other.first_position = 512;
    other.end_segment = 1;
    EXPECT_DEATH(kernels->attend(cache.layer, other, scratch), "segments of one row") << "the segment lies before the window";
    other.first_position = 0;
    other.end_segment = 2;
    EXPECT_DEATH(kernels->attend(cache.layer, other, scratch), "segments of one row");
    EXPECT_DEATH(kernels->join_segments(cache.layer, other), "covers every segment");
    PagedKvLayer odd = cache.layer;
    odd.head_dim = 24;
    EXPECT_DEATH(kernels->attend(odd, item, scratch), "head_dim");
    odd.head_dim = 272;
    EXPECT_DEATH(kernels->attend(odd, item, scratch), "head_dim");
  }
}

// Numbers have every magnitude, and most products are subnormal: all tables must flush the same values to zero.
TEST(Attention, PairsOfTinyNumbersHaveTheBitsOfTheReference) {
  Rng rng(57);
  for (int round = 0; round < 40; ++round) {
    Cache cache(rng, Kind{KvDtype::bf16, true}, 16, 1, 16 * (1 + random_below(rng, 5)), 1 + random_below(rng, 700));
    for (auto* bytes : {&cache.keys, &cache.values}) {
      for (std::size_t at = 0; at < bytes->size(); at += 2) {
        std::uint16_t bits = 0;
        std::memcpy(&bits, bytes->data() + at, 2);
        if ((bits & 0x7F80U) == 0x7F80U) continue;  // no NaN or Inf in a cache that is read
        bits = static_cast<std::uint16_t>((bits & 0x807FU) | random_below(rng, 127) << 7U);
        std::memcpy(bytes->data() + at, &bits, 2);
      }
    }
    Queries queries = random_queries(rng, cache, 1 + random_below(rng, 5), 1 + random_below(rng, std::min(cache.tokens, 40U)));
    for (float& value : queries.q) value = std::ldexp(value, -static_cast<int>(random_below(rng, 150)));
    if (round % 3 == 0) queries.sinks = random_floats(rng, queries.group);
    const std::vector<float> expected = attend(select_kernels(KernelIsa::reference), cache, queries, 1000);
    for (const Kernels* kernels : fast_kernels())
      for (const std::uint32_t rows_per_item : {1U, 40U})
        ASSERT_TRUE(same_bits(attend(*kernels, cache, queries, rows_per_item), expected)) << kernels->name << " round " << round;
  }
  if (fast_kernels().empty()) GTEST_SKIP() << kNothingToCompare;
}

TEST(Attention, LargeScoresDoNotOverflow) {
  Rng rng(43);
  const Cache cache(rng, Kind{KvDtype::f32}, 16, 1, 32, 130);
  Queries queries = random_queries(rng, cache, 2, 130);
  for (float& value : queries.q) value *= 1000.0F;
  const std::vector<float> expected = attend(select_kernels(KernelIsa::reference), cache, queries, 16);
  for (const float value : expected) ASSERT_TRUE(std::isfinite(value));
  for (const Kernels* kernels : fast_kernels()) ASSERT_TRUE(same_bits(attend(*kernels, cache, queries, 16), expected)) << kernels->name;
  if (fast_kernels().empty()) GTEST_SKIP() << kNothingToCompare;
}

// A row has 255 codes and takes the nearest, so the error is at most half a step of largest / 127. The largest value is exact.
TEST(WriteKv, CodesAreTheNearestAndANonFiniteRowReadsAsNaN) {
  Rng rng(51);
  constexpr std::uint32_t dim = 48;
  PagedKvLayer layer{.dtype = KvDtype::int8, .block_size = 4, .num_kv_heads = 1, .head_dim = dim};
  layer.token_stride = row_elements(KvDtype::int8, dim);
  layer.head_stride = layer.block_stride = 4 * layer.token_stride;
  std::vector<std::byte> keys(layer.block_stride), values(layer.block_stride);
  layer.keys = keys.data();
  layer.values = values.data();
  std::vector<float> k = random_floats(rng, 4 * dim);
  for (std::uint32_t d = 0; d < dim; ++d) k[dim + d] *= 1e20F;       // large values
  for (std::uint32_t d = 0; d < dim; ++d) k[2 * dim + d] *= 1e-38F;  // values whose inverse overflows
  k[3 * dim + 7] = std::numeric_limits<float>::infinity();
  const std::vector<std::int64_t> slots{0, 1, 2, 3};
  select_kernels(KernelIsa::best).write_kv(layer, k.data(), k.data(), dim, slots);
  EXPECT_EQ(keys, values);
  for (std::uint32_t t = 0; t < 4; ++t) {
    const std::byte* const row = keys.data() + t * layer.token_stride;
    float scale = 0.0F;
    std::memcpy(&scale, row + dim, sizeof scale);
    float largest = 0.0F;
    for (std::uint32_t d = 0; d < dim; ++d) largest = std::max(largest, std::abs(k[t * dim + d]));
    for (std::uint32_t d = 0; d < dim; ++d) {
      const float read = static_cast<float>(static_cast<std::int8_t>(row[d])) * scale;
      if (t == 3)
        EXPECT_TRUE(std::isnan(read));
      else if (t == 2)
        EXPECT_EQ(read, 0.0F);
      else
        EXPECT_LE(std::abs(read - k[t * dim + d]), largest / 127.0F * 0.5001F);
    }
  }
}

// Slot = block * block_size + offset; bf16 rounds to nearest even, f32 keeps the value.
TEST(WriteKv, WritesEveryElementToItsSlot) {
  Rng rng(50);
  for (const KvDtype dtype : {KvDtype::bf16, KvDtype::f32}) {
    const Cache cache(rng, Kind{dtype}, 8, 3, 32, 50);
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

TEST(WriteKv, WritesOnlyItsSlots) {
  Rng rng(44);
  const Cache cache(rng, Kind{KvDtype::bf16}, 16, 2, 16, 40);
  const auto* words = reinterpret_cast<const std::uint16_t*>(cache.keys.data());
  const std::size_t elements = cache.keys.size() / 2;
  const auto untouched = static_cast<std::size_t>(std::count(words, words + elements, std::uint16_t{0xFFFF}));
  EXPECT_EQ(elements - untouched, 40U * 2 * 16);
}

}  // namespace
}  // namespace quire
