#include "quire/text/tokenizer.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "text/sample_vocabulary.h"
#include "text/utf8.h"

namespace quire {
namespace {

using test::add_token;
using test::byte_level_spec;
using test::make_tokenizer;
using test::sentencepiece_spec;
using Ids = std::vector<TokenId>;
using TokenType = TokenizerSpec::TokenType;

constexpr EncodeOptions kPlain{.add_special = false, .parse_special = false};
constexpr EncodeOptions kParse{.add_special = false, .parse_special = true};

std::string random_text(std::mt19937& random, std::size_t length) {
  const std::vector<std::string> parts{"hello",   " ",      "  ", "\n", "ll", "he", "7", "\xC3\xA9", "\xE4\xBA\xBA", "\xF0\x9F\x98\x80",
                                       "<|end|>", "<tool>", "'s"};
  std::string text;
  for (std::size_t i = 0; i < length; ++i) text += parts[random() % parts.size()];
  return text;
}

TEST(ByteLevelBpe, MergesWithinPieces) {
  const auto tokenizer = make_tokenizer(byte_level_spec());
  EXPECT_EQ(tokenizer->encode("hello hello", kPlain), (Ids{259, 260}));
  EXPECT_EQ(tokenizer->encode("hell", kPlain), (Ids{258}));
  EXPECT_EQ(tokenizer->encode("", kPlain), Ids{});
}

TEST(ByteLevelBpe, UsesAWholePieceWhenMergesAreIgnored) {
  TokenizerSpec spec = byte_level_spec();
  const TokenId whole = add_token(spec, "olleh");
  spec.scores.clear();
  EXPECT_EQ(make_tokenizer(spec)->encode("olleh", kPlain)->size(), 4U);
  spec.ignore_merges = true;
  EXPECT_EQ(make_tokenizer(spec)->encode("olleh", kPlain), Ids{whole});
}

TEST(ByteLevelBpe, RoundTripsEveryText) {
  const auto tokenizer = make_tokenizer(byte_level_spec());
  std::mt19937 random(5);
  for (int round = 0; round < 500; ++round) {
    const std::string text = random_text(random, random() % 30);
    for (const EncodeOptions options : {kPlain, kParse})
      EXPECT_EQ(tokenizer->decode(*tokenizer->encode(text, options), /*skip_special=*/false), text);
  }
}

TEST(ByteLevelBpe, ReadsBytesThatAreNotUtf8AsReplacementCharacters) {
  const auto tokenizer = make_tokenizer(byte_level_spec());
  const std::string broken = "hello \xFF\xE4\xBA";
  EXPECT_EQ(*tokenizer->encode(broken, kPlain), *tokenizer->encode(repair_utf8(broken), kPlain));
}

// A quadratic loop takes hours.
TEST(ByteLevelBpe, EncodesAMegabyteOfOneLetter) {
  const auto tokenizer = make_tokenizer(byte_level_spec({{"a", "a"}, {"aa", "aa"}, {"aaaa", "aaaa"}}));
  EXPECT_EQ(tokenizer->encode(std::string(1 << 20, 'a'), kPlain)->size(), (1U << 20) / 8);
  EXPECT_EQ(tokenizer->encode(std::string(1 << 20, ' '), kPlain)->size(), 1U << 20);
  EXPECT_EQ(tokenizer->encode(std::string(1 << 20, '<'), kParse)->size(), 1U << 20);
}

TEST(ByteLevelBpe, NormalizesWhenTheFileRequiresIt) {
  TokenizerSpec spec = byte_level_spec();
  const std::string decomposed = "e\xCC\x81", composed = "\xC3\xA9";
  EXPECT_NE(*make_tokenizer(spec)->encode(decomposed, kPlain), *make_tokenizer(spec)->encode(composed, kPlain));
  spec.normalizer = "nfc";
  EXPECT_EQ(*make_tokenizer(spec)->encode(decomposed, kPlain), *make_tokenizer(spec)->encode(composed, kPlain));
}

TEST(ByteLevelBpe, EncodesTheSameFromManyThreads) {
  const auto tokenizer = make_tokenizer(byte_level_spec());
  std::mt19937 random(9);
  std::vector<std::string> texts;
  for (int i = 0; i < 200; ++i) texts.push_back(random_text(random, 20));
  const auto reference = make_tokenizer(byte_level_spec());
  std::vector<int> num_wrong(4);
  std::vector<std::thread> threads;
  for (int& wrong : num_wrong) {
    threads.emplace_back([&] {
      for (const std::string& text : texts) wrong += *tokenizer->encode(text) == *reference->encode(text) ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_wrong, std::vector<int>(4));
}

TEST(AddedTokens, ControlTokensInTextAreTextUnlessParsed) {
  const auto tokenizer = make_tokenizer(byte_level_spec());
  const TokenId end = *tokenizer->find("<|end|>"), tool = *tokenizer->find("<tool>");
  EXPECT_EQ(tokenizer->encode("hello<|end|>", kParse), (Ids{259, end}));
  EXPECT_EQ(tokenizer->encode("hello<|end|>", kPlain)->size(), 1 + std::string("<|end|>").size());
  EXPECT_EQ(tokenizer->encode("hello<tool>", kPlain), (Ids{259, tool}));
  EXPECT_TRUE(tokenizer->is_special(end));
  EXPECT_FALSE(tokenizer->is_special(tool));
  EXPECT_EQ(tokenizer->decode(Ids{259, end, tool}), "hello<tool>");
  EXPECT_EQ(tokenizer->decode(Ids{259, end}, /*skip_special=*/false), "hello<|end|>");
}

TEST(AddedTokens, LongestOfTheLeftmostMatchesWins) {
  TokenizerSpec spec = byte_level_spec();
  const TokenId shorter = add_token(spec, "<a", TokenType::user_defined), longer = add_token(spec, "<a>", TokenType::user_defined);
  const TokenId inner = add_token(spec, "a><", TokenType::user_defined);
  spec.scores.clear();
  const auto tokenizer = make_tokenizer(spec);
  EXPECT_EQ(tokenizer->encode("<a><a", kPlain), (Ids{longer, shorter}));
  EXPECT_EQ(tokenizer->encode("a><a>", kPlain), (Ids{inner, 'a', '>'}));
}

TEST(AddedTokens, ObeyTheFlagsForStrippingAndSingleWords) {
  TokenizerSpec spec = byte_level_spec();
  const TokenId strip = add_token(spec, "<mask>", TokenType::control), word = add_token(spec, "cat", TokenType::user_defined);
  spec.scores.clear();
  spec.added_tokens = {{.id = strip, .strip_left = true, .strip_right = true}, {.id = word, .single_word = true}};
  const auto tokenizer = make_tokenizer(spec);
  EXPECT_EQ(tokenizer->encode("hello \n<mask>\xE3\x80\x80 hello", kParse), (Ids{259, strip, 259}));
  EXPECT_EQ(tokenizer->encode("cat", kPlain), Ids{word});
  EXPECT_EQ(tokenizer->encode("(cat)", kPlain)->size(), 3U);
  EXPECT_EQ(tokenizer->encode("cats", kPlain)->size(), 4U);
  EXPECT_EQ(tokenizer
                ->encode("\xC3\xA9"
                         "cat",
                         kPlain)
                ->size(),
            5U);
}

TEST(AddedTokens, NormalizedTokensAreFoundLastInNormalizedText) {
  TokenizerSpec spec = byte_level_spec();
  const TokenId plain = add_token(spec, "bc", TokenType::user_defined), normalized = add_token(spec, "ab", TokenType::user_defined);
  const TokenId accented = add_token(spec, "q\xC3\xA9", TokenType::user_defined);
  spec.scores.clear();
  spec.normalizer = "nfc";
  spec.added_tokens = {{.id = normalized, .normalized = true}, {.id = accented, .normalized = true}};
  const auto tokenizer = make_tokenizer(spec);
  EXPECT_EQ(tokenizer->encode("abc ab", kPlain), (Ids{'a', plain, ' ', normalized}));
  EXPECT_EQ(tokenizer->encode("qe\xCC\x81", kPlain), Ids{accented});
  spec.added_tokens[1].normalized = false;
  EXPECT_GT(make_tokenizer(spec)->encode("qe\xCC\x81", kPlain)->size(), 1U) << "the original text does not contain the token";
}

TEST(AddedTokens, OfTokenizerJsonAreVerbatimTexts) {
  TokenizerSpec spec = sentencepiece_spec();
  const TokenId marks = add_token(spec, "\xE2\x96\x81\xE2\x96\x81", TokenType::user_defined);
  spec.scores.resize(spec.tokens.size());
  EXPECT_EQ(make_tokenizer(spec)->encode("  ", kPlain)->back(), marks) << "in a GGUF file the marks stand for spaces";
  spec.added_tokens_verbatim = true;
  EXPECT_EQ(make_tokenizer(spec)->encode("\xE2\x96\x81\xE2\x96\x81 hello", kPlain)->front(), marks);
}

TEST(Tokenizer, AddsAllTokensOfTheSpecAroundAText) {
  TokenizerSpec spec = byte_level_spec();
  spec.before = {7, 8};
  spec.after = {9, 9};
  const auto tokenizer = make_tokenizer(spec);
  EXPECT_EQ(tokenizer->encode("a"), (Ids{7, 8, 'a', 9, 9}));
  EXPECT_EQ(tokenizer->encode("a", kPlain), Ids{'a'});
  spec.after = {100000};
  EXPECT_FALSE(Tokenizer::create(spec));
}

TEST(ByteLevelBpe, MergesTheLowestIdFirstWhenIdsAreRanks) {
  TokenizerSpec spec = byte_level_spec();
  const TokenId bc = add_token(spec, "bc"), ab = add_token(spec, "ab"), abcd = add_token(spec, "abcd");
  const TokenId cd = add_token(spec, "cd"), aaa = add_token(spec, "aaa"), aa = add_token(spec, "aa");
  spec.merges.clear();
  spec.scores.clear();
  spec.ids_are_ranks = true;
  EXPECT_EQ(make_tokenizer(spec)->encode("abcd", kPlain), (Ids{'a', bc, 'd'})) << "bc is merged first, and then abcd cannot be formed";
  EXPECT_EQ(make_tokenizer(spec)->encode("abd cd", kPlain), (Ids{ab, 'd', ' ', cd}));
  EXPECT_EQ(make_tokenizer(spec)->encode("aaaa aa", kPlain), (Ids{aaa, 'a', ' ', aa}));
  EXPECT_EQ(make_tokenizer(spec)->encode("aaa", kPlain), Ids{aaa});
  spec.ignore_merges = true;
  EXPECT_EQ(make_tokenizer(spec)->encode("abcd", kPlain), Ids{abcd});
}

TEST(SentencePiece, MergesByScoreAfterAddingASpace) {
  const auto tokenizer = make_tokenizer(sentencepiece_spec());
  const TokenId hello = *tokenizer->find(" hello");
  EXPECT_EQ(tokenizer->encode("hello"), (Ids{1, hello}));
  EXPECT_EQ(tokenizer->encode("hello hello", kPlain), (Ids{hello, hello}));
  EXPECT_EQ(tokenizer->decode(Ids{hello, hello}), "hello hello");
  EXPECT_EQ(tokenizer->encode("", kPlain), Ids{});
}

TEST(SentencePiece, EncodesUnknownCharactersAsBytes) {
  const auto tokenizer = make_tokenizer(sentencepiece_spec());
  const Ids expected{*tokenizer->find(" "), 3 + 0xF0, 3 + 0x9F, 3 + 0x98, 3 + 0x80};
  EXPECT_EQ(tokenizer->encode("\xF0\x9F\x98\x80", kPlain), expected);
  EXPECT_EQ(tokenizer->decode(expected), "\xF0\x9F\x98\x80");
}

TEST(SentencePiece, NeverMergesTextIntoAControlToken) {
  const auto tokenizer = make_tokenizer(sentencepiece_spec());
  const auto tokens = tokenizer->encode("<s>", kPlain);
  for (const TokenId token : *tokens) EXPECT_FALSE(tokenizer->is_special(token));
  EXPECT_EQ(tokenizer->encode("<s>", kParse), Ids{1});
}

TEST(SentencePiece, RunOfUnknownsIsOneTokenWithoutByteTokens) {
  TokenizerSpec spec;
  spec.algorithm = TokenizerSpec::Algorithm::sentencepiece;
  spec.unk = add_token(spec, "<unk>", TokenType::unknown);
  const TokenId a = add_token(spec, "a");
  EXPECT_EQ(make_tokenizer(spec)->encode("axya", kPlain), (Ids{a, 0, a}));
}

TEST(SentencePiece, AddsTheSpacePrefixAsTheFileRequires) {
  TokenizerSpec spec = sentencepiece_spec();
  const auto always = make_tokenizer(spec);
  const TokenId hello = *always->find(" hello");
  EXPECT_EQ(always->encode("hello</s>hello", kParse), (Ids{hello, 2, hello}));
  EXPECT_EQ(always->encode(" hello", kPlain), (Ids{*always->find(" "), hello}));
  spec.space_prefix_unless_present = true;
  EXPECT_EQ(make_tokenizer(spec)->encode(" hello", kPlain), Ids{hello});
  EXPECT_EQ(make_tokenizer(spec)->encode("\xE2\x96\x81hello", kPlain), Ids{hello});
  spec.space_prefix_first_only = true;
  EXPECT_EQ(make_tokenizer(spec)->encode("hello</s>hello", kParse)->size(),
            2 + make_tokenizer(spec)->encode("</s>hello", kParse)->size() - 1);
  EXPECT_NE(make_tokenizer(spec)->encode("</s>hello", kParse), (Ids{2, hello}));
}

TEST(SentencePiece, EncodesAMegabyteOfOneLetter) {
  EXPECT_EQ(make_tokenizer(sentencepiece_spec())->encode(std::string(1 << 20, 'l'), kPlain)->size(), (1U << 20) + 1);
}

TEST(TokenizerErrors, NameTheProblem) {
  const auto error_of = [](TokenizerSpec spec) {
    auto tokenizer = Tokenizer::create(std::move(spec));
    return tokenizer ? Error{} : tokenizer.error();
  };
  TokenizerSpec spec = byte_level_spec();
  spec.pre = "never-heard-of";
  EXPECT_EQ(error_of(spec).code, ErrorCode::unsupported);
  EXPECT_NE(error_of(spec).message.find("never-heard-of"), std::string::npos);

  spec = byte_level_spec();
  spec.split_patterns = {"(unclosed"};
  EXPECT_EQ(error_of(spec).code, ErrorCode::unsupported);

  spec = byte_level_spec();
  spec.types.pop_back();
  EXPECT_EQ(error_of(spec).code, ErrorCode::corrupt);

  spec = sentencepiece_spec();
  spec.scores.at(3) = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(error_of(spec).field, "tokenizer scores");
  EXPECT_NE(error_of(spec).message.find("token 3 "), std::string::npos);

  spec = byte_level_spec();
  spec.merges.emplace_back("alone");
  EXPECT_NE(error_of(spec).message.find("alone"), std::string::npos);

  spec = byte_level_spec();
  spec.eos = 100000;
  EXPECT_EQ(error_of(spec).field, "tokenizer eos id");

  EXPECT_EQ(error_of(TokenizerSpec{}).code, ErrorCode::unsupported);
}

TEST(TokenizerErrors, HostileExpressionIsAnError) {
  TokenizerSpec spec = byte_level_spec();
  spec.split_patterns = {"(a+)+$"};
  const auto tokenizer = make_tokenizer(spec);
  const auto tokens = tokenizer->encode(std::string(64, 'a') + "b", kPlain);
  ASSERT_FALSE(tokens.has_value());
  EXPECT_EQ(tokens.error().code, ErrorCode::invalid_argument);
  EXPECT_FALSE(tokens.error().remedy.empty());
  EXPECT_EQ(tokenizer->encode("aab", kPlain)->size(), 3U);
}

// Each search attempt stays below the limit, but all attempts together exceed it.
TEST(TokenizerErrors, QuadraticSearchIsAnError) {
  TokenizerSpec spec = byte_level_spec();
  spec.split_patterns = {"x+$"};
  EXPECT_FALSE(make_tokenizer(spec)->encode(std::string(1 << 16, 'x') + "1", kPlain).has_value());
}

TEST(TokenizerErrors, ReturnAnErrorForMoreTokensThanAllowed) {
  for (const TokenizerSpec& spec : {byte_level_spec(), sentencepiece_spec()}) {
    const auto tokenizer = make_tokenizer(spec);
    const std::string text = "hello he <tool>";
    const std::size_t count = tokenizer->encode(text)->size();
    EXPECT_EQ(tokenizer->encode(text, {.max_tokens = count})->size(), count);
    for (std::size_t max_tokens = 0; max_tokens < count; ++max_tokens) {
      const auto tokens = tokenizer->encode(text, {.max_tokens = max_tokens});
      ASSERT_FALSE(tokens.has_value());
      EXPECT_EQ(tokens.error().code, ErrorCode::too_large);
    }
  }
}

TEST(Tokenizer, ReturnsTheLengthOfTheLongestToken) {
  EXPECT_EQ(make_tokenizer(byte_level_spec())->max_token_bytes(), std::string("<|end|>").size());
  EXPECT_EQ(make_tokenizer(sentencepiece_spec())->max_token_bytes(), std::string(" hello").size());
}

TEST(Tokenizer, SkipsIdsOutsideTheVocabulary) {
  const auto tokenizer = make_tokenizer(byte_level_spec());
  EXPECT_EQ(tokenizer->decode(Ids{-1, 'a', 1 << 20}), "a");
  EXPECT_EQ(tokenizer->token_bytes(-5), "");
  EXPECT_FALSE(tokenizer->is_special(1 << 20));
}

}  // namespace
}  // namespace quire
