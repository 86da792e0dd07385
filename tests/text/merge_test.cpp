#include "text/merge.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

namespace quire {
namespace {

using Table = std::map<std::pair<TokenId, TokenId>, Merge>;

std::vector<TokenId> merge_fast(const std::vector<TokenId>& ids, const Table& table, std::uint32_t bytes_per_symbol = 1) {
  Merger merger;
  for (const TokenId id : ids) merger.append(id, bytes_per_symbol);
  merger.run([&](std::uint32_t, const Symbol& left, const Symbol& right) -> std::optional<Merge> {
    const auto found = table.find({left.id, right.id});
    return found == table.end() ? std::nullopt : std::optional(found->second);
  });
  std::vector<TokenId> out;
  std::uint32_t end = 0;
  merger.for_each([&](std::uint32_t begin, const Symbol& symbol) {
    EXPECT_EQ(begin, end);
    end += symbol.length;
    out.push_back(symbol.id);
  });
  EXPECT_EQ(end, ids.size() * bytes_per_symbol);
  return out;
}

// This is the definition: merge the leftmost pair of the lowest rank until no pair can be merged.
std::vector<TokenId> merge_naive(std::vector<TokenId> ids, const Table& table) {
  while (true) {
    auto best = table.end();
    std::size_t best_at = 0;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = table.find({ids[i], ids[i + 1]});
      if (found != table.end() && (best == table.end() || found->second.rank < best->second.rank)) {
        best = found;
        best_at = i;
      }
    }
    if (best == table.end()) return ids;
    ids[best_at] = best->second.id;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
}

// The ranks are in random order, and some pairs share a rank, like pairs with equal scores.
Table random_table(std::mt19937& random, std::uint32_t size) {
  Table table;
  TokenId next_id = 4;
  for (std::uint32_t i = 0; i < size; ++i) {
    const auto pick = [&] { return static_cast<TokenId>(random() % static_cast<unsigned>(next_id)); };
    const std::pair pair(pick(), pick());
    const std::uint32_t rank = random() % 2 == 0 ? i / 2 : random() % size;
    if (table.emplace(pair, Merge{rank, next_id}).second) ++next_id;
  }
  return table;
}

TEST(Merger, AgreesWithTheDefinitionOnRandomTables) {
  std::mt19937 random(11);
  for (int round = 0; round < 600; ++round) {
    const Table table = random_table(random, 12);
    std::vector<TokenId> ids;
    // Long texts use buckets; short texts use only the heap.
    for (unsigned i = 0; i < 1 + random() % (round % 4 == 0 ? 700 : 60); ++i) ids.push_back(static_cast<TokenId>(random() % 4));
    ASSERT_EQ(merge_fast(ids, table, 1 + random() % 4), merge_naive(ids, table)) << "round " << round;
  }
}

// The test counts work instead of time: every candidate is looked up when it is offered and when it is taken.
TEST(Merger, LookupsAreLinearInTheLengthOfTheText) {
  for (const std::uint32_t length : {1U << 14, 1U << 20}) {
    Merger merger;
    for (std::uint32_t i = 0; i < length; ++i) merger.append(0, 1);
    std::size_t num_lookups = 0;
    // Id k stands for 2^k letters.
    merger.run([&](std::uint32_t, const Symbol& left, const Symbol& right) -> std::optional<Merge> {
      ++num_lookups;
      if (left.id != right.id || left.id > 10) return std::nullopt;
      return Merge{static_cast<std::uint32_t>(left.id), left.id + 1};
    });
    EXPECT_LT(num_lookups, std::size_t{6} * length);
  }
}

TEST(Merger, HandlesEmptyAndSingleSymbolTexts) {
  EXPECT_TRUE(merge_fast({}, {}).empty());
  EXPECT_EQ(merge_fast({3}, {}), std::vector<TokenId>{3});
}

}  // namespace
}  // namespace quire
