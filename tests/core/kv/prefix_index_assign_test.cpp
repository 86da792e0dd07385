// Tests that an index restores the hashes of blocks from its entries, or refuses them completely.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>

#include "base/random.h"
#include "core/kv/kv_support.h"
#include "core/kv/prefix_index.h"
#include "support/rounds.h"

namespace quire::test {
namespace {

using CachedEntry = PrefixIndex::CachedEntry;

constexpr std::uint32_t kNoPrevious = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint32_t kNumHashed = 24;

// Fills an index with few keys for many blocks: one hash in the first group and two in the second. `stride` puts different keys into one
// bucket.
PrefixIndex random_index(Random& random, std::uint64_t stride) {
  PrefixIndex index(kNumHashed, 2);
  for (int step = 0; step < 60; ++step) {
    const BlockId block{static_cast<std::uint32_t>(random.below(kNumHashed))};
    if (index.contains(block)) {
      index.remove(block);
      continue;
    }
    const auto group = static_cast<std::uint32_t>(random.below(2));
    const BlockHash hashes[] = {widened(random.below(3)), widened(random.below(4) * stride)};
    index.insert({group == 0 ? std::span(hashes).last(1) : std::span(hashes), group}, block);
  }
  return index;
}

std::vector<std::array<std::uint32_t, 4>> tuples(const std::vector<CachedEntry>& all) {
  std::vector<std::array<std::uint32_t, 4>> out;
  for (const CachedEntry& one : all) out.push_back({one.block, one.previous, one.group, one.num_hashes});
  return out;
}

TEST(PrefixIndexAssign, RestoresExactlyTheseKeysInTheirOrder) {
  for (std::uint64_t seed = 1; seed <= rounds_of(400); ++seed) {
    Random random(seed);
    const bool replaced = random.chance(0.5);
    const std::uint64_t stride = random.chance(0.5) ? 1 : std::uint64_t{1} << 32;
    const PrefixIndex index = random_index(random, stride);
    PrefixIndex other = random_index(random, stride);
    std::vector<BlockHash> names;
    const std::vector<CachedEntry> all = index.to_entries(names, replaced);
    ASSERT_TRUE(other.assign(all, names, replaced)) << "seed " << seed;
    other.check_invariants();
    ASSERT_EQ(other.size(), index.size()) << "seed " << seed;
    for (std::uint32_t i = 0; i < kNumHashed; ++i) {
      const BlockId block{i};
      ASSERT_EQ(other.contains(block), index.contains(block)) << "seed " << seed << ", block " << i;
      if (!index.contains(block)) continue;
      const BlockKey name = index.name_of(block);
      ASSERT_TRUE(std::ranges::equal(other.name_of(block).hashes, name.hashes));
      ASSERT_EQ(other.name_of(block).group, name.group);
      ASSERT_EQ(other.find(name), index.find(name)) << "the first inserted block of a key is found";
    }
    // If the entries mark replaced keys, the order is kept only within each key.
    std::vector<BlockHash> again;
    ASSERT_EQ(tuples(other.to_entries(again, replaced)), tuples(all)) << "seed " << seed;
    ASSERT_EQ(again, names);
  }
}

// Blocks 3 and 5 have the same key of one hash, block 3 first. Block 4 has another key of two hashes.
struct ThreeEntries {
  std::vector<CachedEntry> all{{.block = 3, .previous = kNoPrevious, .group = 0, .num_hashes = 1},
                               {.block = 5, .previous = 3, .group = 0, .num_hashes = 1},
                               {.block = 4, .previous = kNoPrevious, .group = 0, .num_hashes = 2}};
  std::vector<BlockHash> hashes{widened(1), widened(1), widened(2), widened(3)};

  [[nodiscard]] bool fit(std::size_t num_hashes = 4) const {
    PrefixIndex index(8, 2);
    return index.assign(all, std::span(hashes).first(num_hashes), false);
  }
};

TEST(PrefixIndexAssign, RefusesInconsistentEntries) {
  ASSERT_TRUE(ThreeEntries().fit());
  const auto changed = [](auto change) {
    ThreeEntries names;
    change(names.all);
    return names.fit();
  };
  EXPECT_FALSE(changed([](auto& all) { all[2].block = 8; })) << "the block is outside the pool";
  EXPECT_FALSE(changed([](auto& all) { all[2].block = 3; })) << "the block already has a key";
  EXPECT_FALSE(changed([](auto& all) { all[2].num_hashes = 0; })) << "the key has no hash";
  EXPECT_FALSE(changed([](auto& all) { all[1].num_hashes = 3; })) << "the key has more hashes than its group allows";
  EXPECT_FALSE(changed([](auto& all) { all[1].previous = 8; })) << "the previous block does not exist";
  EXPECT_FALSE(changed([](auto& all) { all[2].previous = 3; })) << "two blocks have the same previous block";
  EXPECT_FALSE(changed([](auto& all) { all[1].previous = 4; })) << "the previous block has another key";
  EXPECT_FALSE(changed([](auto& all) { all[1].previous = 6; })) << "the previous block has no key";
  EXPECT_FALSE(changed([](auto& all) { all[1].previous = kNoPrevious; })) << "two blocks come first";
  EXPECT_FALSE(changed([](auto& all) { all[0].previous = 5; })) << "two blocks refer to each other";
}

TEST(PrefixIndexAssign, RefusesEntriesWithTooFewHashes) {
  for (std::size_t num_hashes = 0; num_hashes < 4; ++num_hashes) EXPECT_FALSE(ThreeEntries().fit(num_hashes)) << num_hashes;
}

}  // namespace
}  // namespace quire::test
