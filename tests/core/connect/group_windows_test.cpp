// Compares with a naive model how many tokens a tier can serve when cache groups need different blocks.
#include "core/connect/group_windows.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "base/random.h"
#include "core/connect/grouped_config.h"

namespace quire::test {
namespace {

std::string window_refusal(const CoreConfig& config) {
  const auto created = GroupWindows::create(config);
  return created ? "" : created.error().field;
}

GroupWindows windows_of(const std::vector<std::uint32_t>& windows, std::uint32_t block_size) {
  CoreConfig config = grouped_config(windows);
  config.block_size = block_size;
  config.kv.groups = cache_groups_of(windows, block_size);
  return GroupWindows::create(config).value();
}

TEST(GroupWindowsTest, RefusesOtherGroupKindsAndBlockSizes) {
  EXPECT_EQ(window_refusal(grouped_config({0, 9, 5})), "");
  EXPECT_EQ(window_refusal(grouped_config({9})), "");
  CoreConfig config = grouped_config({0, 9});
  config.fixes.hits_before_loads = false;
  EXPECT_EQ(window_refusal(config), "fixes.hits_before_loads");
  config = grouped_config({0, 9});
  config.block_size = kBlockSize / 2;
  EXPECT_EQ(window_refusal(config), "block_size");
  ChunkedLocalSpec chunks;
  chunks.block_size = kBlockSize;
  chunks.attention_chunk_size = 8;
  config = grouped_config({0, 9});
  config.kv.groups[1].spec = chunks;
  EXPECT_EQ(window_refusal(config), "kv.groups");
  config.kv.groups.clear();
  EXPECT_EQ(window_refusal(config), "kv.groups");
  EXPECT_EQ(window_refusal(grouped_config({1})), "kv.groups") << "a window of one token loads nothing";
  EXPECT_EQ(window_refusal(grouped_config({0, 1})), "");
}

TEST(GroupWindowsTest, NeedsTheBlocksThatTheNextTokenAttendsTo) {
  const GroupWindows windows = GroupWindows::create(grouped_config({0, 5, 6, 1, 100})).value();
  EXPECT_FALSE(windows.is_plain());
  EXPECT_TRUE(windows.has_windows());
  EXPECT_EQ(windows.first_needed(0, 3), 0U);
  EXPECT_EQ(windows.first_needed(1, 3), 2U) << "the token at 12 attends to tokens from 8 on";
  EXPECT_EQ(windows.first_needed(2, 3), 1U) << "this window reaches back to token 7";
  EXPECT_EQ(windows.first_needed(3, 3), 3U) << "the token attends to itself only";
  EXPECT_EQ(windows.first_needed(4, 3), 0U);
  EXPECT_EQ(windows.first_needed(2, 0), 0U);
  const GroupWindows of_tokens = windows_of({0, 5}, 1);
  EXPECT_EQ(of_tokens.first_needed(1, 4), 0U);
  EXPECT_EQ(of_tokens.first_needed(1, 5), 1U) << "the token at 5 attends to four before it";
  EXPECT_TRUE(GroupWindows::create(grouped_config({0})).value().is_plain());
  EXPECT_FALSE(GroupWindows::create(grouped_config({7})).value().is_plain());
}

TEST(GroupWindowsTest, NeedsTheLastBlockOfAStateGroup) {
  CoreConfig config = grouped_config({0, 9});
  MambaSpec states;
  states.block_size = kBlockSize;
  states.mode = MambaCacheMode::all;
  config.kv.groups[1].spec = states;
  GroupWindows windows = GroupWindows::create(config).value();
  EXPECT_TRUE(windows.has_windows()) << "one token is computed after the loaded blocks";
  for (const std::uint32_t size : {1U, 2U, 9U}) EXPECT_EQ(windows.first_needed(1, size), size - 1);
  const auto loadable = [](std::uint32_t block, std::uint32_t group) { return group == 0 || block == 1 || block == 4; };
  EXPECT_EQ(windows.longest(0, 9, loadable), 5U);
  EXPECT_EQ(windows.longest(0, 4, loadable), 2U);
  EXPECT_EQ(windows.longest(2, 4, loadable), 2U) << "no state is stored after these blocks";
}

// Returns whether the tier has all tokens that the token after the first `size` blocks attends to.
bool naive_fits(const std::vector<std::uint32_t>& windows, const std::set<std::pair<std::uint32_t, std::uint32_t>>& there,
                std::uint32_t first, std::uint32_t size, std::uint32_t block_size) {
  for (std::uint32_t group = 0; group < windows.size(); ++group) {
    for (std::uint32_t token = first * block_size; token < size * block_size; ++token) {
      const bool is_seen = windows[group] == 0 || token + windows[group] > size * block_size;
      if (is_seen && !there.contains({token / block_size, group})) return false;
    }
  }
  return true;
}

TEST(GroupWindowsTest, ReachesAsFarAsANaiveSearch) {
  std::map<std::uint32_t, std::uint32_t> num_found;
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    Random random(seed);
    std::vector<std::uint32_t> groups;
    for (std::uint64_t i = random.between(1, 4); i > 0; --i)
      groups.push_back(random.chance(0.3) ? 0 : static_cast<std::uint32_t>(random.between(groups.empty() ? 2 : 1, 20)));
    const auto end = static_cast<std::uint32_t>(random.below(12));
    const auto first = static_cast<std::uint32_t>(random.below(end + 1));
    const std::uint32_t block_size = 1U << random.below(3);
    const double share = random.chance(0.5) ? 0.95 : 0.7;
    std::set<std::pair<std::uint32_t, std::uint32_t>> there, asked;
    for (std::uint32_t block = first; block < end; ++block)
      for (std::uint32_t group = 0; group < groups.size(); ++group)
        if (random.chance(share)) there.emplace(block, group);
    GroupWindows windows = windows_of(groups, block_size);
    const std::uint32_t found = windows.longest(first, end, [&](std::uint32_t block, std::uint32_t group) {
      EXPECT_TRUE(block >= first && block < end && group < groups.size());
      EXPECT_TRUE(asked.emplace(block, group).second) << "each block is looked up once";
      return there.contains({block, group});
    });
    std::uint32_t wanted = end;
    while (wanted > first && !naive_fits(groups, there, first, wanted, block_size)) --wanted;
    ASSERT_EQ(found, wanted) << "seed " << seed;
    ++num_found[found - first];
  }
  for (std::uint32_t size = 0; size < 8; ++size) EXPECT_GT(num_found[size], 50U) << "the test covers too few cases";
}

}  // namespace
}  // namespace quire::test
