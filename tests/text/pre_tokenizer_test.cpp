#include "text/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "text/utf8.h"

namespace quire {
namespace {

using Pieces = std::vector<std::string_view>;

Pieces split(const PreTokenizer& pre_tokenizer, std::string_view text) {
  Pieces pieces;
  const auto done = pre_tokenizer.for_each_piece(text, [&](std::string_view piece) {
    pieces.push_back(piece);
    return true;
  });
  EXPECT_TRUE(done.has_value()) << done.error().to_string();
  return pieces;
}

PreTokenizer make(const std::vector<std::string>& patterns) {
  return *PreTokenizer::create(patterns);
}

TEST(PreTokenizer, EachPatternSplitsThePiecesOfThePreviousPattern) {
  const PreTokenizer pre_tokenizer = make({"[0-9]+", "[a-z][0-9a-z]"});
  EXPECT_EQ(split(pre_tokenizer, "abc12d"), (Pieces{"ab", "c", "12", "d"}));
  EXPECT_EQ(split(pre_tokenizer, ""), Pieces{});
  EXPECT_EQ(split(make({}), "a b"), Pieces{"a b"});
}

TEST(PreTokenizer, EmptyMatchSplitsAtItsPosition) {
  EXPECT_EQ(split(make({"(?=b)"}), "abab"), (Pieces{"a", "ba", "b"}));
  EXPECT_EQ(split(make({"$"}), "ab"), Pieces{"ab"});
}

TEST(PreTokenizer, StopsWhenTheVisitorReturnsFalse) {
  std::size_t num_visited = 0;
  const auto done = make({"a"}).for_each_piece("aaaaaa", [&](std::string_view) { return ++num_visited < 3; });
  EXPECT_TRUE(done.has_value());
  EXPECT_EQ(num_visited, 3U);
}

// The pre-tokenizer searches for `\s+$` with special code. It does not recognize the equivalent expression and searches for it literally.
TEST(PreTokenizer, FastSearchForTrailingWhitespaceMatchesTheExpression) {
  const PreTokenizer fast = make({R"(\s+$)"}), plain = make({R"(\s+(?:$))"});
  const std::vector<std::string> parts{" ", " ", "\n", "\r", "\t", "\u00A0", "\u3000", "a", "\u4EBA"};
  std::mt19937 random(31);
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (unsigned i = 0; i < random() % 12; ++i) text += parts[random() % parts.size()];
    ASSERT_EQ(split(fast, text), split(plain, text)) << testing::PrintToString(text);
  }
}

// The regex engine counts its steps: a quadratic search exceeds its limit of 64 per byte.
TEST(PreTokenizer, NoKnownExpressionIsQuadraticInRunsOfEqualCharacters) {
  const std::vector<std::string> units{" ",      "\n",      "\t",     "\u00A0",       "a",    "A",   "Aa", "1", "'", "!", " !",
                                       "\u0301", "a\u0301", "\u4EBA", "\u1112\u1161", "\r\n", " \n", "<|"};
  for (const char* name : {"gpt-2", "smollm", "llama3", "qwen2", "qwen35", "tekken", "gpt-4o", "deepseek-v3", "deepseek-llm",
                           "deepseek-coder", "falcon", "bloom", "viking", "default"}) {
    const PreTokenizer pre_tokenizer = make(*pre_tokenizer_by_name(name));
    for (const std::string& unit : units) {
      for (const char* end : {"", "1", "a", "!", " ", "\n"}) {
        std::string text;
        while (text.size() < (1 << 14)) text += unit;
        std::size_t bytes = 0;
        const auto done = pre_tokenizer.for_each_piece(text + end, [&](std::string_view piece) {
          bytes += piece.size();
          return true;
        });
        EXPECT_TRUE(done.has_value()) << name << " on " << testing::PrintToString(unit) << ", then " << testing::PrintToString(end);
        EXPECT_EQ(bytes, text.size() + std::string_view(end).size());
      }
    }
  }
}

}  // namespace
}  // namespace quire
