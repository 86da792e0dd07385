#include "quire/text/detokenizer.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "text/sample_vocabulary.h"
#include "text/utf8.h"

namespace quire {
namespace {

using test::byte_level_spec;
using test::make_tokenizer;
using test::sentencepiece_spec;

TEST(Detokenizer, NeverEmitsAnIncompleteCharacter) {
  const auto tokenizer = make_tokenizer(byte_level_spec());
  Detokenizer detokenizer(*tokenizer);
  EXPECT_EQ(detokenizer.push(0xF0), "");
  EXPECT_EQ(detokenizer.push(0x9F), "");
  EXPECT_EQ(detokenizer.push(0x98), "");
  EXPECT_EQ(detokenizer.push(0x80), "\xF0\x9F\x98\x80");
  EXPECT_EQ(detokenizer.push(0xC3), "");
  EXPECT_EQ(detokenizer.push('a'),
            "\xEF\xBF\xBD"
            "a");
  EXPECT_EQ(detokenizer.push(0xE2), "");
  EXPECT_EQ(detokenizer.num_held_bytes(), 1U);
  EXPECT_EQ(detokenizer.flush(), "\xEF\xBF\xBD");
  EXPECT_EQ(detokenizer.flush(), "");
}

TEST(Detokenizer, StreamsTheTextOfDecode) {
  const auto bytes = make_tokenizer(byte_level_spec());
  const auto pieces = make_tokenizer(sentencepiece_spec());
  std::mt19937 random(2);
  for (int round = 0; round < 1000; ++round) {
    const Tokenizer& tokenizer = round % 2 == 0 ? *bytes : *pieces;
    std::vector<TokenId> tokens(random() % 20);
    for (TokenId& token : tokens) token = static_cast<TokenId>(random() % (tokenizer.vocab_size() + 2));
    const bool skip_special = random() % 2 == 0;
    Detokenizer detokenizer(tokenizer, {.skip_special = skip_special, .start_of_text = true});
    std::string streamed;
    for (const TokenId token : tokens) {
      const std::string_view part = detokenizer.push(token);
      ASSERT_TRUE(is_valid_utf8(part));
      streamed += part;
    }
    streamed += detokenizer.flush();
    std::string whole;
    for (const TokenId token : tokens)
      if (!skip_special || !tokenizer.is_special(token)) whole += tokenizer.token_bytes(token);
    if (tokenizer.strips_leading_space() && whole.starts_with(' ')) whole.erase(0, 1);
    ASSERT_EQ(streamed, repair_utf8(whole));
    ASSERT_EQ(streamed, tokenizer.decode(tokens, skip_special));
  }
}

TEST(Detokenizer, KeepsTheLeadingSpaceUnlessAtTheStartOfText) {
  const auto tokenizer = make_tokenizer(sentencepiece_spec());
  const TokenId hello = *tokenizer->find(" hello");
  Detokenizer continued(*tokenizer), from_start(*tokenizer, {.start_of_text = true});
  EXPECT_EQ(continued.push(hello), " hello");
  EXPECT_EQ(from_start.push(1), "");
  EXPECT_EQ(from_start.push(hello), "hello");
  EXPECT_EQ(from_start.push(hello), " hello");
}

TEST(Detokenizer, ShowsControlTokensOnRequest) {
  const auto tokenizer = make_tokenizer(byte_level_spec());
  const TokenId end = *tokenizer->find("<|end|>");
  Detokenizer hiding(*tokenizer), showing(*tokenizer, {.skip_special = false});
  EXPECT_EQ(hiding.push(end), "");
  EXPECT_EQ(showing.push(end), "<|end|>");
}

TEST(Detokenizer, FlushBeginsANewText) {
  const auto tokenizer = make_tokenizer(sentencepiece_spec());
  const TokenId hello = *tokenizer->find(" hello"), space = *tokenizer->find(" ");
  Detokenizer from_start(*tokenizer, {.start_of_text = true}), continued(*tokenizer);
  for (int text = 0; text < 2; ++text) {
    EXPECT_EQ(from_start.push(hello), "hello");
    EXPECT_EQ(from_start.push(hello), " hello");
    EXPECT_EQ(from_start.flush(), "");
    EXPECT_EQ(continued.push(hello), " hello");
    EXPECT_EQ(continued.flush(), "");
  }
  EXPECT_EQ(from_start.push(space), "") << "the space is all of the token";
  EXPECT_EQ(from_start.push(hello), " hello") << "only the first space is stripped";
  from_start.flush();
  EXPECT_EQ(from_start.push(3 + 'a'), "a");
  EXPECT_EQ(from_start.push(hello), " hello");
}

}  // namespace
}  // namespace quire
