#include "text/merge_table.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "text/sample_vocabulary.h"

namespace quire {
namespace {

using test::add_token;
using MergeLines = std::vector<std::string>;

// Normal tokens with these texts; the ids follow their order.
TokenizerSpec spec_with_merges(TokenizerSpec::Algorithm algorithm, const std::vector<std::string>& tokens, MergeLines merges) {
  TokenizerSpec spec;
  spec.algorithm = algorithm;
  for (const std::string& token : tokens) add_token(spec, token);
  spec.scores.clear();
  spec.merges = std::move(merges);
  return spec;
}

constexpr auto kPieces = TokenizerSpec::Algorithm::sentencepiece;
constexpr auto kBytes = TokenizerSpec::Algorithm::bpe_bytes;

TEST(MergeTable, MapsPairsToTheRankAndTheResultOfTheirMerge) {
  const TokenizerSpec spec = spec_with_merges(kBytes, {"a", "b", "ab", "ba", "aba"}, {"a b", "b a", "ab a", "a ba"});
  const Vocabulary vocabulary = Vocabulary::create(spec).value();
  const MergeTable table = MergeTable::create(spec, vocabulary).value();
  EXPECT_EQ(table.size(), 4U);
  struct Pair {
    TokenId left, right, merged;
    std::uint32_t rank;
  };
  for (const Pair& pair : {Pair{0, 1, 2, 0}, Pair{1, 0, 3, 1}, Pair{2, 0, 4, 2}, Pair{0, 3, 4, 3}}) {
    const auto merge = table.find(pair.left, pair.right);
    ASSERT_TRUE(merge) << pair.left << ' ' << pair.right;
    EXPECT_EQ(merge->id, pair.merged);
    EXPECT_EQ(merge->rank, pair.rank);
  }
  for (const auto& [left, right] : {std::pair<TokenId, TokenId>{0, 0}, {1, 1}, {3, 0}, {0, 2}, {-1, 0}, {0, -1}, {4, 4}})
    EXPECT_FALSE(table.find(left, right)) << left << ' ' << right;
}

TEST(MergeTable, TheFirstOfEqualMergesCountsAndSkippedMergesKeepTheirRank) {
  const TokenizerSpec spec = spec_with_merges(kBytes, {"a", "b", "ab", "ba"}, {"x a", "a b", "a x", "b b", "a b", "b a"});
  const Vocabulary vocabulary = Vocabulary::create(spec).value();
  const MergeTable table = MergeTable::create(spec, vocabulary).value();
  EXPECT_EQ(table.size(), 2U) << "a merge without its tokens can never apply";
  EXPECT_EQ(table.find(0, 1)->rank, 1U);
  EXPECT_EQ(table.find(1, 0)->rank, 5U);
}

// The pieces contain spaces themselves. The ids are: 0 "a", 1 "b", 2 "a b", 3 "b a", 4 "a b a", 5 " ", 6 " a".
TEST(MergeTable, SplitsAtTheFirstSpaceThatGivesTwoTokens) {
  const std::vector<std::string> tokens{"a", "b", "a b", "b a", "a b a", " ", " a"};
  struct Split {
    std::string line;
    std::vector<TokenId> found;  // left, right and merged
  };
  for (const Split& split : {Split{"a b a", {}}, Split{"a b  a", {2, 6, 4}}, Split{"a  b a", {}}, Split{"  a", {5, 0, 6}},
                             Split{"b  a", {1, 6, 3}}, Split{"a c b", {}}, Split{"a b c d", {}}}) {
    const TokenizerSpec spec = spec_with_merges(kPieces, tokens, {split.line});
    const Vocabulary vocabulary = Vocabulary::create(spec).value();
    const MergeTable table = MergeTable::create(spec, vocabulary).value();
    ASSERT_EQ(table.size(), split.found.empty() ? 0U : 1U) << split.line;
    if (split.found.empty()) continue;
    const auto merge = table.find(split.found[0], split.found[1]);
    ASSERT_TRUE(merge) << split.line;
    EXPECT_EQ(merge->id, split.found[2]) << split.line;
  }
}

TEST(MergeTable, NeverSplitsOffAnEmptyPart) {
  const TokenizerSpec spec = spec_with_merges(kPieces, {"a", "a b", ""}, {"a b "});
  const Vocabulary vocabulary = Vocabulary::create(spec).value();
  EXPECT_EQ(MergeTable::create(spec, vocabulary)->size(), 0U);
}

TEST(MergeTable, ReadsPartsInTheAlphabetOfTheVocabulary) {
  const TokenizerSpec bytes = spec_with_merges(kBytes, {"\u0120", "a", "\u0120a"}, {"\u0120 a"});
  EXPECT_EQ(MergeTable::create(bytes, Vocabulary::create(bytes).value())->find(0, 1)->id, 2);
  const TokenizerSpec pieces = spec_with_merges(kPieces, {"\u2581", "a", "\u2581a"}, {"\u2581 a"});
  EXPECT_EQ(MergeTable::create(pieces, Vocabulary::create(pieces).value())->find(0, 1)->id, 2);
}

TEST(MergeTable, ReportsTheLineThatDoesNotHaveTwoParts) {
  for (const char* line : {"", "a", " ", "a ", " a", "ab "}) {
    const TokenizerSpec spec = spec_with_merges(kPieces, {"a", "b", "ab"}, {"a b", line});
    const auto table = MergeTable::create(spec, Vocabulary::create(spec).value());
    ASSERT_FALSE(table) << '"' << line << '"';
    EXPECT_EQ(table.error().code, ErrorCode::corrupt);
    EXPECT_EQ(table.error().field, "tokenizer merges");
    EXPECT_EQ(table.error().message, "merge 1 (\"" + std::string(line) + "\") does not have two parts");
  }
}

}  // namespace
}  // namespace quire
