// Names of blocks that are told and given back: an index takes them all over or refuses them.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>

#include "base/random.h"
#include "core/kv/kv_support.h"
#include "core/kv/prefix_index.h"
#include "support/rounds.h"

namespace quire {
namespace {

using Named = PrefixIndex::Named;
using test::widened;

constexpr std::uint32_t kNobodyBefore = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint32_t kNumNamed = 24;

// Few names for many blocks, of one hash in the first group and of two in the second; `stride` puts different names into one bucket.
PrefixIndex random_index(Random& random, std::uint64_t stride) {
  PrefixIndex index(kNumNamed, 2);
  for (int step = 0; step < 60; ++step) {
    const BlockId block{static_cast<std::uint32_t>(random.below(kNumNamed))};
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

std::vector<std::array<std::uint32_t, 4>> tuples(const std::vector<Named>& all) {
  std::vector<std::array<std::uint32_t, 4>> out;
  for (const Named& one : all) out.push_back({one.block, one.previous, one.group, one.num_hashes});
  return out;
}

TEST(PrefixIndexAssign, AnotherIndexHasTheseNamesInTheirOrderAndNoOthers) {
  for (std::uint64_t seed = 1; seed <= rounds_of(400); ++seed) {
    Random random(seed);
    const bool replaced = random.chance(0.5);
    const std::uint64_t stride = random.chance(0.5) ? 1 : std::uint64_t{1} << 32;
    const PrefixIndex index = random_index(random, stride);
    PrefixIndex other = random_index(random, stride);
    std::vector<BlockHash> names;
    const std::vector<Named> all = index.to_named(names, replaced);
    ASSERT_TRUE(other.assign(all, names, replaced)) << "seed " << seed;
    other.check_invariants();
    ASSERT_EQ(other.size(), index.size()) << "seed " << seed;
    for (std::uint32_t i = 0; i < kNumNamed; ++i) {
      const BlockId block{i};
      ASSERT_EQ(other.contains(block), index.contains(block)) << "seed " << seed << ", block " << i;
      if (!index.contains(block)) continue;
      const BlockName name = index.name_of(block);
      ASSERT_TRUE(std::ranges::equal(other.name_of(block).hashes, name.hashes));
      ASSERT_EQ(other.name_of(block).group, name.group);
      ASSERT_EQ(other.find(name), index.find(name)) << "the first inserted of a name is found";
    }
    // Where names are told to be replaced, an order is kept within each name alone.
    std::vector<BlockHash> again;
    ASSERT_EQ(tuples(other.to_named(again, replaced)), tuples(all)) << "seed " << seed;
    ASSERT_EQ(again, names);
  }
}

// Blocks 3 and 5 have one name of one hash, block 3 first; block 4 has another one, of two.
struct ThreeNames {
  std::vector<Named> all{{.block = 3, .previous = kNobodyBefore, .group = 0, .num_hashes = 1},
                         {.block = 5, .previous = 3, .group = 0, .num_hashes = 1},
                         {.block = 4, .previous = kNobodyBefore, .group = 0, .num_hashes = 2}};
  std::vector<BlockHash> hashes{widened(1), widened(1), widened(2), widened(3)};

  [[nodiscard]] bool fit(std::size_t num_hashes = 4) const {
    PrefixIndex index(8, 2);
    return index.assign(all, std::span(hashes).first(num_hashes), false);
  }
};

TEST(PrefixIndexAssign, NamesThatCannotHaveBeenSoAreRefused) {
  ASSERT_TRUE(ThreeNames().fit());
  const auto changed = [](auto change) {
    ThreeNames names;
    change(names.all);
    return names.fit();
  };
  EXPECT_FALSE(changed([](auto& all) { all[2].block = 8; })) << "a block behind the pool";
  EXPECT_FALSE(changed([](auto& all) { all[2].block = 3; })) << "a block that has a name already";
  EXPECT_FALSE(changed([](auto& all) { all[2].num_hashes = 0; })) << "a name of nothing";
  EXPECT_FALSE(changed([](auto& all) { all[1].num_hashes = 3; })) << "a name that is longer than its group's";
  EXPECT_FALSE(changed([](auto& all) { all[1].previous = 8; })) << "behind a block that there is not";
  EXPECT_FALSE(changed([](auto& all) { all[2].previous = 3; })) << "two behind one";
  EXPECT_FALSE(changed([](auto& all) { all[1].previous = 4; })) << "behind a block of another name";
  EXPECT_FALSE(changed([](auto& all) { all[1].previous = 6; })) << "behind a block without a name";
  EXPECT_FALSE(changed([](auto& all) { all[1].previous = kNobodyBefore; })) << "two that come first";
  EXPECT_FALSE(changed([](auto& all) { all[0].previous = 5; })) << "each behind the other";
}

TEST(PrefixIndexAssign, NamesWithFewerHashesThanTheyCountAreRefused) {
  for (std::size_t num_hashes = 0; num_hashes < 4; ++num_hashes) EXPECT_FALSE(ThreeNames().fit(num_hashes)) << num_hashes;
}

}  // namespace
}  // namespace quire
