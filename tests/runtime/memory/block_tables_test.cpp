#include "runtime/memory/block_tables.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "base/random.h"

namespace quire {
namespace {

constexpr BlockTableLimits kLimits{.num_slots = 5, .max_blocks_per_slot = 7, .block_size = 4, .num_blocks = 100};

std::vector<BlockId> some_blocks(Random& random, std::size_t count) {
  std::vector<BlockId> blocks(count);
  for (BlockId& block : blocks) block = BlockId{static_cast<std::uint32_t>(random.below(kLimits.num_blocks))};
  return blocks;
}

BlockTableDelta delta(Slot slot, TableUpdate update, std::uint32_t index, std::span<const BlockId> blocks) {
  return {.slot = slot, .group = 0, .id = {}, .update = update, .index = index, .blocks = blocks};
}

// A delta that fits, applied to the tables and to a map of vectors.
void random_delta(Random& random, BlockTables& tables, std::vector<BlockId>& naive, Slot slot) {
  const auto kind = random.below(4);
  if (kind == 0 && !naive.empty()) {
    const auto index = static_cast<std::uint32_t>(random.below(naive.size()));
    const auto blocks = some_blocks(random, 1);
    tables.apply(delta(slot, TableUpdate::replace_one, index, blocks));
    naive[index] = blocks[0];
  } else if (kind == 1) {
    naive = some_blocks(random, random.below(kLimits.max_blocks_per_slot + 1));
    tables.apply(delta(slot, TableUpdate::replace_all, 0, naive));
  } else {
    const auto blocks = some_blocks(random, random.below(kLimits.max_blocks_per_slot - naive.size() + 1));
    tables.apply(delta(slot, TableUpdate::append, 0, blocks));
    naive.insert(naive.end(), blocks.begin(), blocks.end());
  }
}

TEST(BlockTables, RandomDeltasMatchANaiveTable) {
  Random random(11);
  BlockTables tables(kLimits);
  std::map<std::uint32_t, std::vector<BlockId>> naive;
  for (int step = 0; step < 5000; ++step) {
    const Slot slot{static_cast<std::uint32_t>(random.below(kLimits.num_slots))};
    if (random.chance(0.1)) {
      tables.release(slot);
      naive[slot.value].clear();
    } else {
      random_delta(random, tables, naive[slot.value], slot);
    }
    for (std::uint32_t s = 0; s < kLimits.num_slots; ++s) {
      const auto row = tables.row(Slot{s});
      ASSERT_EQ(std::vector(row.begin(), row.end()), naive[s]);
      for (std::uint32_t p = 0; p < naive[s].size() * kLimits.block_size; ++p)
        ASSERT_EQ(tables.kv_slot(Slot{s}, p), naive[s][p / 4].value * 4 + p % 4);
    }
  }
}

TEST(BlockTablesDeath, RefusesWhatDoesNotFit) {
  BlockTables tables(kLimits);
  const std::vector<BlockId> many(kLimits.max_blocks_per_slot + 1);
  const std::vector<BlockId> one(1), outside(1, BlockId{kLimits.num_blocks});
  EXPECT_DEATH(tables.apply(delta(Slot{0}, TableUpdate::append, 0, many)), "overflows");
  EXPECT_DEATH(tables.apply(delta(Slot{5}, TableUpdate::append, 0, one)), "no such slot");
  EXPECT_DEATH(tables.apply(delta(Slot{0}, TableUpdate::replace_one, 0, one)), "not there");
  EXPECT_DEATH(tables.apply(delta(Slot{0}, TableUpdate::append, 0, outside)), "no such block");
  BlockTableDelta other_group = delta(Slot{0}, TableUpdate::append, 0, one);
  other_group.group = 1;
  EXPECT_DEATH(tables.apply(other_group), "one cache group");
  EXPECT_DEATH(static_cast<void>(tables.kv_slot(Slot{0}, 0)), "beyond the block table");
}

}  // namespace
}  // namespace quire
