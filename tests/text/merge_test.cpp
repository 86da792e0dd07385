#include "text/merge.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

namespace quire {
namespace {

using Table = std::map<std::pair<TokenId, TokenId>, Merge>;

std::vector<Symbol> symbols_of(const std::vector<TokenId>& ids) {
  std::vector<Symbol> symbols;
  for (std::uint32_t i = 0; i < ids.size(); ++i) symbols.push_back({.begin = i, .length = 1, .id = ids[i]});
  return symbols;
}

std::vector<TokenId> merge_fast(const std::vector<TokenId>& ids, const Table& table) {
  Merger merger;
  merger.symbols = symbols_of(ids);
  merger.run([&](const Symbol& left, const Symbol& right) -> std::optional<Merge> {
    const auto found = table.find({left.id, right.id});
    return found == table.end() ? std::nullopt : std::optional(found->second);
  });
  std::vector<TokenId> out;
  for (const Symbol& symbol : merger.symbols)
    if (symbol.length > 0) out.push_back(symbol.id);
  return out;
}

// The definition: merge the leftmost pair of lowest rank until there is none.
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

TEST(Merger, AgreesWithTheDefinitionOnRandomTables) {
  std::mt19937 random(11);
  for (int round = 0; round < 400; ++round) {
    Table table;
    TokenId next_id = 4;
    for (std::uint32_t rank = 0; rank < 12; ++rank) {
      const auto pick = [&] { return static_cast<TokenId>(random() % static_cast<unsigned>(next_id)); };
      const std::pair pair(pick(), pick());
      // Some ranks are shared, as equal scores are.
      if (table.emplace(pair, Merge{rank / 2, next_id}).second) ++next_id;
    }
    std::vector<TokenId> ids;
    for (unsigned i = 0; i < 1 + random() % 60; ++i) ids.push_back(static_cast<TokenId>(random() % 4));
    ASSERT_EQ(merge_fast(ids, table), merge_naive(ids, table)) << "round " << round;
  }
}

TEST(Merger, LeavesOneSymbolAndNoneAlone) {
  EXPECT_TRUE(merge_fast({}, {}).empty());
  EXPECT_EQ(merge_fast({3}, {}), std::vector<TokenId>{3});
}

}  // namespace
}  // namespace quire
