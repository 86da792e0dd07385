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

TEST(PreTokenizer, NamesOfOneFamilyHaveTheSameExpressions) {
  const std::vector<std::vector<std::string_view>> families{
      {"gpt-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "phi-2", "exaone4", "gigachat", "a.x-4.0", "mellum"},
      {"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"},
      {"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "glm4", "chatglm-bpe", "dbrx",
       "smaug-bpe"},
      {"qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez", "grok-2", "solar-open"},
      {"gpt-4o", "llama4", "minimax-m2"},
      {"deepseek-v3", "hunyuan-dense", "joyai-llm"},
      {"bloom", "poro-chat", "gpt3-finnish"},
      {"qwen35"},
      {"tekken"},
      {"kimi-k2"},
      {"deepseek-llm"},
      {"deepseek-coder"},
      {"falcon"},
      {"viking"},
      {"default"}};
  std::vector<std::vector<std::string>> all;
  for (const std::vector<std::string_view>& names : families) {
    const auto first = pre_tokenizer_by_name(names.front());
    ASSERT_TRUE(first) << names.front();
    EXPECT_FALSE(first->empty()) << names.front();
    for (const std::string_view name : names) EXPECT_EQ(*pre_tokenizer_by_name(name), *first) << name;
    for (const std::vector<std::string>& other : all) EXPECT_NE(*first, other) << names.front() << " is a family of its own";
    all.push_back(*first);
  }
  EXPECT_TRUE(pre_tokenizer_by_name("")->empty());
  const auto unknown = pre_tokenizer_by_name("gpt-3");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::unsupported);
  EXPECT_EQ(unknown.error().field, "tokenizer.ggml.pre");
  EXPECT_EQ(unknown.error().message, "the pre-tokenizer \"gpt-3\" is not supported");
}

TEST(Regex, FindsTheFirstMatchFromAPosition) {
  const Regex regex = Regex::create("a+").value();
  const std::string_view text = "baab a";
  struct Case {
    std::size_t from, begin, end;
  };
  for (const Case& one : {Case{0, 1, 3}, Case{1, 1, 3}, Case{2, 2, 3}, Case{3, 5, 6}, Case{5, 5, 6}}) {
    const auto match = regex.find(text, one.from);
    ASSERT_TRUE(match && *match) << one.from;
    EXPECT_EQ((*match)->begin, one.begin);
    EXPECT_EQ((*match)->end, one.end);
  }
  EXPECT_FALSE(regex.find(text, 6)->has_value());
  EXPECT_FALSE(regex.find("", 0)->has_value());
  EXPECT_TRUE(Regex::create("(?<!b)a")->find(text, 2)->has_value());
  EXPECT_EQ((*Regex::create("(?<!b)a")->find(text, 1))->begin, 2U) << "look-behind sees the text before the position";
  const auto invalid = Regex::create("(a");
  ASSERT_FALSE(invalid);
  EXPECT_EQ(invalid.error().code, ErrorCode::unsupported);
  EXPECT_EQ(invalid.error().field, "pre_tokenizer");
  EXPECT_TRUE(invalid.error().message.ends_with(" in the expression (a")) << invalid.error().message;
}

}  // namespace
}  // namespace quire
