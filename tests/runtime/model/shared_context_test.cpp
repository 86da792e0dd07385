// Compares the sets of rows that share a prefix with a naive comparison of all block tables.
#include "runtime/model/layers/shared_context.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "base/random.h"
#include "runtime/model/tiny_configs.h"

namespace quire {
namespace {

constexpr std::uint32_t kFewest = 4;  // fewest rows that become items together

struct Row {
  std::vector<BlockId> blocks;
  std::uint32_t position = 0;
};

// Draws rows, most of which share a prefix with an earlier row.
std::vector<Row> draw_rows(Random& random, std::uint32_t count, std::uint32_t block_size) {
  std::vector<Row> rows(count);
  std::uint32_t next = 1;
  for (std::uint32_t i = 0; i < count; ++i) {
    Row& row = rows[i];
    if (i > 0 && random.chance(0.8)) {
      const std::vector<BlockId>& other = rows[random.below(i)].blocks;
      row.blocks.assign(other.begin(), other.begin() + static_cast<std::ptrdiff_t>(random.below(other.size() + 1)));
    }
    for (std::uint64_t own = random.between(1, 3); own > 0; --own) row.blocks.push_back(BlockId{next++});
    const auto tokens = static_cast<std::uint32_t>(row.blocks.size()) * block_size;
    row.position = tokens - 1 - static_cast<std::uint32_t>(random.below(block_size));
  }
  return rows;
}

std::uint32_t naive_common(const Row& a, const Row& b, std::uint32_t block_size) {
  std::uint32_t blocks = 0;
  while ((blocks + 1) * block_size <= std::min(a.position, b.position) && a.blocks[blocks] == b.blocks[blocks]) ++blocks;
  return blocks * block_size;
}

struct Found {
  std::set<std::uint32_t> once;                   // rows in all items of one head
  std::map<std::uint32_t, std::uint32_t> shared;  // tokens by row
};

Found check_items(const Pass& pass, const GroupPass& group, const std::vector<Row>& rows, std::uint32_t block_size) {
  Found found;
  std::map<std::uint32_t, std::uint32_t> num_rows_of_head;
  for (const AttentionItem& item : group.items) {
    EXPECT_GE(item.rows, kFewest / 2);
    EXPECT_LE(item.rows, kAttentionItemRows);
    EXPECT_EQ(item.shared_tokens % kTileTokens, 0U);
    num_rows_of_head[item.kv_head] += item.rows;
    for (std::uint32_t i = 0; i < item.rows && item.kv_head == 0; ++i) {
      const SharingRow& sharing = item.sharing[i];
      const auto row = static_cast<std::uint32_t>(static_cast<std::size_t>(sharing.q - pass.workspace.qkv) / pass.shape.qkv_size());
      EXPECT_EQ(sharing.out, pass.workspace.mixed + std::size_t{row + 1} * pass.shape.q_size());
      EXPECT_EQ(sharing.position, rows[row].position);
      EXPECT_EQ(sharing.blocks, rows[row].blocks.data());
      EXPECT_GE(sharing.position, item.shared_tokens);
      EXPECT_TRUE(std::equal(item.blocks, item.blocks + (item.shared_tokens + block_size - 1) / block_size, sharing.blocks));
      EXPECT_TRUE(found.once.insert(row).second) << "row " << row << " twice";
      found.shared[row] = item.shared_tokens;
    }
  }
  for (const auto& [head, num_rows] : num_rows_of_head) EXPECT_EQ(num_rows, found.once.size()) << "head " << head;
  return found;
}

TEST(SharedContext, FindsRowsWithASharedPrefixAndNoOthers) {
  const ModelConfig config = tiny::small_llama();
  std::uint32_t num_shared = 0, num_alone = 0;
  for (std::uint64_t seed = 0; seed < 900; ++seed) {
    Random random(seed);
    ThreadPool pool(static_cast<unsigned>(random.between(1, 3)));
    Pass pass(config, select_kernels(KernelIsa::best), ActivationMode::f32,
              {.rows = 64, .sequences = 48, .threads = pool.num_threads(), .positions = 4096}, pool);
    const auto block_size = std::uint32_t{8} << random.below(3);
    const auto count = static_cast<std::uint32_t>(random.below(49));
    const std::vector<Row> rows = draw_rows(random, count, block_size);
    GroupPass& group = pass.workspace.groups[0];
    group.window = random.chance(0.3) ? 200 : 0;
    std::set<std::uint32_t> refused;
    for (std::uint32_t row = 0; row < count; ++row) {
      pass.workspace.positions[row] = pass.workspace.last_seen[row] = rows[row].position;
      if (random.chance(0.05)) ++pass.workspace.last_seen[row];
      const bool sees_all = group.window == 0 || rows[row].position < group.window;
      const bool may = sees_all && pass.workspace.last_seen[row] == rows[row].position && rows[row].position >= kTileTokens;
      ASSERT_EQ(defer_to_sharers(pass, group, rows[row].blocks, row, row + 1), may);
      if (!may) refused.insert(row);
    }
    const bool is_few = pool.num_threads() > 1 && group.decode_rows.size() * config.num_kv_heads < kItemsPerThread * pool.num_threads();
    add_shared_items(pass, group, block_size);
    const Found found = check_items(pass, group, rows, block_size);
    ASSERT_EQ(found.once.size() + group.decode_rows.size() + refused.size(), count) << "each row is handled once";
    if (is_few) ASSERT_TRUE(found.once.empty()) << "threads share the segments of so few rows instead";
    const auto is_first = [&](const DecodeRow& row) { return group.sharing_sets[row.sharing_set].count == 1; };
    for (const DecodeRow& a : group.decode_rows)
      for (const DecodeRow& b : group.decode_rows)
        if (!is_few && &a != &b && is_first(a) && is_first(b))
          ASSERT_LT(naive_common(rows[a.row], rows[b.row], block_size), kTileTokens) << a.row << " and " << b.row;
    num_shared += static_cast<std::uint32_t>(found.once.size());
    num_alone += static_cast<std::uint32_t>(group.decode_rows.size());
    if (testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
  EXPECT_GT(num_shared, 500U) << "too few shared rows";
  EXPECT_GT(num_alone, 500U) << "too few single rows";
}

// Four rows share a long prefix, and a fifth row shares only the start of it. Sharing with the fifth row would cost the four more than it
// saves.
TEST(SharedContext, KeepsALongSharedPrefixInsteadOfAddingOneMoreRow) {
  ThreadPool pool(1);
  Pass pass(tiny::small_llama(), select_kernels(KernelIsa::best), ActivationMode::f32,
            {.rows = 8, .sequences = 8, .threads = 1, .positions = 4096}, pool);
  std::vector<Row> rows(5);
  for (std::uint32_t i = 0; i < 64; ++i)
    for (std::uint32_t row = 0; row < 5; ++row) rows[row].blocks.push_back(BlockId{row == 4 && i >= 4 ? 100 + i : i + 1});
  GroupPass& group = pass.workspace.groups[0];
  for (std::uint32_t row = 0; row < 5; ++row) {
    rows[row].position = pass.workspace.positions[row] = pass.workspace.last_seen[row] = 64 * 16 - 1;
    ASSERT_TRUE(defer_to_sharers(pass, group, rows[row].blocks, row, row + 1));
  }
  add_shared_items(pass, group, 16);
  const Found found = check_items(pass, group, rows, 16);
  EXPECT_EQ(found.shared, (std::map<std::uint32_t, std::uint32_t>{{0, 960}, {1, 960}, {2, 960}, {3, 960}}));
  ASSERT_EQ(group.decode_rows.size(), 1U);
  EXPECT_EQ(group.decode_rows[0].row, 4U);
}

}  // namespace
}  // namespace quire
