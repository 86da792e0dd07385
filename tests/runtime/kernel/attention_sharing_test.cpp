// Rows of several requests that share their first blocks: each row has the bits that it has alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "runtime/kernel/attention_fixtures.h"

namespace quire {
namespace {

using namespace kernel_test;

// Requests in one cache: the first blocks are shared, the others are private.
struct SharingSet {
  SharingSet(Rng& rng, Kind kind, std::uint32_t block_size, std::uint32_t head_dim, std::uint32_t shared, std::uint32_t num_rows)
      : cache(rng, kind, block_size, 2, head_dim, shared + num_rows * (kMostOwn + 2 * block_size)) {
    const std::uint32_t num_common = (shared + block_size - 1) / block_size;
    std::uint32_t next = num_common;
    for (std::uint32_t row = 0; row < num_rows; ++row) {
      positions.push_back(shared + random_below(rng, kMostOwn));
      std::vector<BlockId>& table = tables.emplace_back(cache.blocks.begin(), cache.blocks.begin() + num_common);
      while (table.size() * block_size <= positions.back()) table.push_back(cache.blocks.at(next++));
    }
  }
  static constexpr std::uint32_t kMostOwn = 150;

  Cache cache;
  std::vector<std::uint32_t> positions;
  std::vector<std::vector<BlockId>> tables;
};

std::vector<float> attend_all(const Kernels& kernels, const SharingSet& sharing_sets, const std::vector<float>& q, AttentionItem item,
                              std::uint32_t shared) {
  const std::uint32_t dim = sharing_sets.cache.layer.head_dim;
  const std::size_t stride = std::size_t{sharing_sets.cache.layer.num_kv_heads} * item.group * dim;
  std::vector<float> out(q.size(), 777.0F);
  AlignedVector<std::byte> scratch(attention_scratch_bytes(dim, item.group), std::byte{0xFF});
  std::vector<SharingRow> rows;
  rows.reserve(sharing_sets.tables.size());
  for (std::size_t row = 0; row < sharing_sets.tables.size(); ++row)
    rows.push_back({q.data() + row * stride, out.data() + row * stride, sharing_sets.positions[row], sharing_sets.tables[row].data()});
  for (item.kv_head = 0; item.kv_head < sharing_sets.cache.layer.num_kv_heads; ++item.kv_head) {
    if (shared > 0) {
      item.rows = static_cast<std::uint32_t>(rows.size());
      item.blocks = rows[0].blocks;
      item.sharing = rows.data();
      item.shared_tokens = shared;
      kernels.attend(sharing_sets.cache.layer, item, scratch);
      continue;
    }
    for (const SharingRow& row : rows) {
      item.q = row.q;
      item.out = row.out;
      item.rows = 1;
      item.first_position = row.position;
      item.blocks = row.blocks;
      kernels.attend(sharing_sets.cache.layer, item, scratch);
    }
  }
  return out;
}

TEST(SharedRows, EachRowHasTheBitsOfTheRowAlone) {
  Rng rng(71);
  for (int round = 0; round < 30; ++round) {
    const std::uint32_t head_dim = 16 * (1 + random_below(rng, 9)), group = 1 + random_below(rng, 7);
    const std::uint32_t shared = 64 * (1 + random_below(rng, 18)), num_rows = round % 10 == 0 ? 40 : 1 + random_below(rng, 10);
    const std::uint32_t block_size = std::vector<std::uint32_t>{1, 7, 16, 32, 100}[random_below(rng, 5)];
    const SharingSet sharing_sets(rng, any_kind(rng), block_size, head_dim, shared, num_rows);
    const std::vector<float> q = random_floats(rng, std::size_t{num_rows} * 2 * group * head_dim);
    const std::vector<float> sinks = random_floats(rng, std::size_t{2} * group);
    AttentionItem item{.group = group, .scale = 0.125F, .in_pairs = sharing_sets.cache.in_pairs};
    if (round % 4 == 0) item.soft_cap = 3.0F;
    if (round % 5 == 0) item.sinks = sinks.data();
    const std::vector<float> expected = attend_all(select_kernels(KernelIsa::reference), sharing_sets, q, item, 0);
    for (const Kernels* kernels : available_kernels())
      ASSERT_TRUE(same_bits(attend_all(*kernels, sharing_sets, q, item, shared), expected))
          << kernels->name << " dim " << head_dim << " group " << group << " shared " << shared << " rows " << num_rows;
  }
}

// A segment ends within the shared tokens, at their end, or after it.
TEST(SharedRows, SegmentsMergeWhereverTheyEnd) {
  Rng rng(72);
  for (const std::uint32_t shared : {64U, 448U, 512U, 576U, 1024U, 1472U}) {
    const SharingSet sharing_sets(rng, Kind{KvDtype::bf16, shared % 128 == 0}, 16, 64, shared, 9);
    const std::vector<float> q = random_floats(rng, std::size_t{9} * 2 * 3 * 64);
    const AttentionItem item{.group = 3, .scale = 0.125F, .in_pairs = sharing_sets.cache.in_pairs};
    const std::vector<float> expected = attend_all(select_kernels(KernelIsa::reference), sharing_sets, q, item, 0);
    for (const Kernels* kernels : available_kernels())
      for (std::uint32_t read_once = 64; read_once <= shared; read_once += 64)
        ASSERT_TRUE(same_bits(attend_all(*kernels, sharing_sets, q, item, read_once), expected)) << kernels->name << " " << read_once;
  }
}

TEST(SharedRowsDeath, RequiresSharedTilesToBeWholeAndRowsToFollowThem) {
  Rng rng(73);
  SharingSet sharing_sets(rng, Kind{KvDtype::bf16}, 16, 16, 128, 2);
  const std::vector<float> q = random_floats(rng, std::size_t{2} * 2 * 16);
  const AttentionItem item{.group = 1, .scale = 0.125F};
  const Kernels& kernels = select_kernels(KernelIsa::reference);
  EXPECT_DEATH(attend_all(kernels, sharing_sets, q, item, 65), "shared tokens are a whole number of tiles");
  sharing_sets.positions[1] = 127;
  EXPECT_DEATH(attend_all(kernels, sharing_sets, q, item, 128), "at or after the end of the shared tokens");
}

}  // namespace
}  // namespace quire
