#include "runtime/memory/block_tables.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <utility>
#include <vector>

#include "base/random.h"

namespace quire {
namespace {

constexpr std::uint32_t kSlots = 5;
constexpr std::uint32_t kMaxBlocks = 7;
constexpr BlockTableLimits kLimits{
    .num_rows = kSlots, .max_model_len = 27, .num_blocks = 100, .block_size = 4, .kernel_block_size = 4, .parallel = {}};

using Naive = std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<BlockId>>;  // by group and slot

std::vector<BlockId> some_blocks(Random& random, std::size_t count) {
  std::vector<BlockId> blocks(count);
  for (BlockId& block : blocks) block = BlockId{static_cast<std::uint32_t>(random.below(kLimits.num_blocks))};
  return blocks;
}

BlockTableDelta delta(Slot slot, TableUpdate update, std::uint32_t index, std::span<const BlockId> blocks, std::uint32_t group = 0) {
  return {.slot = slot, .group = group, .id = {}, .update = update, .index = index, .blocks = blocks};
}

// Applies a valid random delta to the tables and to a map of vectors.
void random_delta(Random& random, BlockTables& tables, std::vector<BlockId>& naive, Slot slot, std::uint32_t group) {
  const auto kind = random.below(4);
  if (kind == 0 && !naive.empty()) {
    const auto index = static_cast<std::uint32_t>(random.below(naive.size()));
    const auto blocks = some_blocks(random, 1);
    tables.apply(delta(slot, TableUpdate::replace_one, index, blocks, group));
    naive[index] = blocks[0];
  } else if (kind == 1) {
    naive = some_blocks(random, random.below(kMaxBlocks + 1));
    tables.apply(delta(slot, TableUpdate::replace_all, 0, naive, group));
  } else {
    const auto blocks = some_blocks(random, random.below(kMaxBlocks - naive.size() + 1));
    tables.apply(delta(slot, TableUpdate::append, 0, blocks, group));
    naive.insert(naive.end(), blocks.begin(), blocks.end());
  }
}

// Tests two groups and reads them after each commit; staged deltas are not visible until then.
TEST(BlockTables, RandomDeltasMatchANaiveTable) {
  Random random(11);
  BlockTables tables(std::vector(2, kLimits));
  Naive naive, seen;
  for (int step = 0; step < 5000; ++step) {
    const Slot slot{static_cast<std::uint32_t>(random.below(kSlots))};
    const auto group = static_cast<std::uint32_t>(random.below(2));
    if (random.chance(0.1)) {
      tables.release(slot);
      for (const std::uint32_t g : {0U, 1U}) naive[{g, slot.value}].clear();
    } else {
      random_delta(random, tables, naive[{group, slot.value}], slot, group);
    }
    if (random.chance(0.5)) {
      tables.commit(kSlots);
      seen = naive;
    }
    for (std::uint32_t s = 0; s < kSlots; ++s) {
      const std::vector<BlockId>& expected = seen[{group, s}];
      const auto row = tables.row(group, Slot{s});
      ASSERT_EQ(std::vector(row.begin(), row.end()), expected);
      for (std::uint32_t p = 0; p < expected.size() * 4; ++p)
        ASSERT_EQ(tables.kv_slot(group, Slot{s}, p), expected[p / 4].value * 4 + p % 4);
    }
  }
}

// The example of vLLM's documentation of the slot mapping.
TEST(BlockTable, MapsTokensToSlots) {
  BlockTable table(kLimits);
  table.add(0, std::vector{BlockId{5}, BlockId{8}});
  table.add(1, std::vector{BlockId{2}, BlockId{3}, BlockId{10}});
  table.add(2, std::vector{BlockId{12}});
  table.commit(3);
  std::vector<std::int64_t> slots;
  for (const auto& [row, position] : std::vector<std::pair<std::uint32_t, std::uint32_t>>{{0, 3}, {0, 7}, {1, 2}, {1, 5}, {1, 9}, {2, 1}})
    slots.push_back(table.slot(row, position));
  EXPECT_EQ(slots, (std::vector<std::int64_t>{23, 35, 10, 13, 41, 49}));
}

TEST(BlockTable, ABlockHasSeveralKernelBlocks) {
  BlockTableLimits limits = kLimits;
  limits.kernel_block_size = 2;
  BlockTable table(limits);
  table.append(0, std::vector{BlockId{3}, BlockId{0}});
  table.commit(1);
  const auto row = table.row(0);
  EXPECT_EQ(std::vector(row.begin(), row.end()), (std::vector{BlockId{6}, BlockId{7}, BlockId{0}, BlockId{1}}));
  EXPECT_EQ(table.slot(0, 3), 15);
}

// With context parallelism every token has its slot on one rank. The ranks' formula is from vLLM's compute_slot_mapping.
TEST(BlockTable, RanksDistributeTheTokensOfABlock) {
  constexpr std::uint32_t kSize = 8, kTokens = 190;
  for (const auto& [dcp, pcp, turn] : std::vector<std::array<std::uint32_t, 3>>{{1, 1, 1}, {2, 1, 1}, {4, 1, 2}, {2, 3, 4}, {1, 2, 8}}) {
    const std::uint32_t world = dcp * pcp;
    std::vector<std::uint32_t> owners(kTokens, 0);
    for (std::uint32_t rank = 0; rank < world; ++rank) {
      BlockTableLimits limits{.num_rows = 1,
                              .max_model_len = kTokens,
                              .num_blocks = 100,
                              .block_size = kSize,
                              .kernel_block_size = kSize,
                              .parallel = {dcp, rank % dcp, pcp, rank / dcp, turn}};
      BlockTable table(limits);
      std::vector<BlockId> blocks;
      for (std::uint32_t i = 0; i * kSize * world < kTokens; ++i) blocks.push_back(BlockId{7 + 3 * i});
      table.append(0, blocks);
      table.commit(1);
      for (std::uint32_t p = 0; p < kTokens; ++p) {
        const std::uint32_t virtual_block_size = kSize * world, offset = p % virtual_block_size;
        const bool mine = offset / turn % world == rank;
        const std::uint32_t block_offset = offset / (world * turn) * turn + offset % turn;
        const std::int64_t wanted = mine ? std::int64_t{blocks[p / virtual_block_size].value} * kSize + block_offset : -1;
        ASSERT_EQ(table.slot(0, p), wanted) << dcp << " x " << pcp << ", turns of " << turn << ", token " << p;
        owners[p] += mine ? 1 : 0;
      }
    }
    EXPECT_EQ(owners, std::vector<std::uint32_t>(kTokens, 1));
  }
}

TEST(BlockTablesDeath, RefusesInvalidDeltasAndLimits) {
  BlockTables tables(std::vector{kLimits});
  const std::vector<BlockId> many(kMaxBlocks + 1);
  const std::vector<BlockId> one(1), outside(1, BlockId{kLimits.num_blocks});
  EXPECT_DEATH(tables.apply(delta(Slot{0}, TableUpdate::append, 0, many)), "the blocks fit into the row");
  EXPECT_DEATH(tables.apply(delta(Slot{5}, TableUpdate::append, 0, one)), "the row exists");
  EXPECT_DEATH(tables.release(Slot{5}), "the row exists");
  EXPECT_DEATH(tables.move(Slot{0}, Slot{5}), "the row exists");
  EXPECT_DEATH(tables.swap(Slot{5}, Slot{0}), "the row exists");
  EXPECT_DEATH(tables.commit(6), "the row exists");
  EXPECT_DEATH(tables.apply(delta(Slot{0}, TableUpdate::replace_one, 0, one)), "a replaced entry exists");
  EXPECT_DEATH(tables.apply(delta(Slot{0}, TableUpdate::append, 0, outside)), "the block ID is less than the number of blocks");
  EXPECT_DEATH(tables.apply(delta(Slot{0}, TableUpdate::append, 0, one, 1)), "the cache group exists");
  EXPECT_DEATH(static_cast<void>(tables.row(1, Slot{0})), "the cache group exists");
  tables.apply(delta(Slot{0}, TableUpdate::append, 0, one));
  EXPECT_DEATH(static_cast<void>(tables.kv_slot(0, Slot{0}, 0)), "within the blocks of the row");
  BlockTableLimits limits = kLimits;
  limits.kernel_block_size = 3;
  EXPECT_DEATH(BlockTable{limits}, "whole number of kernel blocks");
  limits = kLimits;
  limits.parallel.interleave_size = 8;
  EXPECT_DEATH(BlockTable{limits}, "multiple of the interleave size");
  limits = kLimits;
  limits.parallel.dcp_rank = 1;
  EXPECT_DEATH(BlockTable{limits}, "each rank is less than its world size");
}

}  // namespace
}  // namespace quire
