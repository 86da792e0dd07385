#include "text/vocabulary.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <string>
#include <vector>

#include "text/sample_vocabulary.h"

namespace quire {
namespace {

using test::add_token;
using Kind = TokenizerSpec::TokenType;

TokenizerSpec three_tokens() {
  TokenizerSpec spec;
  spec.algorithm = TokenizerSpec::Algorithm::sentencepiece;
  for (const char* text : {"a", "b", "c"}) add_token(spec, text);
  return spec;
}

void expect_refused(const TokenizerSpec& spec, std::string_view field, std::string_view message) {
  const auto vocabulary = Vocabulary::create(spec);
  ASSERT_FALSE(vocabulary) << field << ' ' << message;
  EXPECT_EQ(vocabulary.error().code, ErrorCode::corrupt);
  EXPECT_EQ(vocabulary.error().field, field);
  EXPECT_EQ(vocabulary.error().message, message);
}

TEST(Vocabulary, RefusesListsThatDoNotFitItsTokens) {
  TokenizerSpec spec;
  expect_refused(spec, "tokenizer tokens", "the vocabulary is empty");
  spec = three_tokens();
  spec.types.pop_back();
  expect_refused(spec, "tokenizer token types", "there are 2 types, but 3 tokens");
  spec = three_tokens();
  spec.scores.push_back(0.0F);
  expect_refused(spec, "tokenizer scores", "there are 4 scores, but 3 tokens");
  spec = three_tokens();
  spec.scores[2] = std::numeric_limits<float>::quiet_NaN();
  expect_refused(spec, "tokenizer scores", "the score of token 2 is not a number");
  spec = three_tokens();
  spec.types.clear();
  spec.scores.clear();
  const auto vocabulary = Vocabulary::create(spec);
  ASSERT_TRUE(vocabulary) << "types and scores may be missing";
  EXPECT_EQ(vocabulary->type(2), Kind::normal);
}

TEST(Vocabulary, RefusesIdsOutsideItself) {
  for (const TokenId id : {-1, 3, 1 << 30}) {
    const std::string message = std::to_string(id) + " is not in the vocabulary";
    TokenizerSpec spec = three_tokens();
    spec.bos = id;
    expect_refused(spec, "tokenizer bos id", message);
    spec = three_tokens();
    spec.eos = id;
    expect_refused(spec, "tokenizer eos id", message);
    spec = three_tokens();
    spec.unk = id;
    expect_refused(spec, "tokenizer unk id", message);
    spec = three_tokens();
    spec.pad = id;
    expect_refused(spec, "tokenizer pad id", message);
    spec = three_tokens();
    spec.before = {0, id};
    expect_refused(spec, "tokenizer ids before or after a text", message);
    spec = three_tokens();
    spec.after = {2, id};
    expect_refused(spec, "tokenizer ids before or after a text", message);
    spec = three_tokens();
    spec.eog = {0, id};
    expect_refused(spec, "tokenizer end-of-generation ids", message);
  }
  TokenizerSpec spec = three_tokens();
  spec.bos = spec.unk = 0;
  spec.eos = spec.pad = 2;
  spec.before = spec.after = spec.eog = {0, 2};
  const auto vocabulary = Vocabulary::create(spec);
  ASSERT_TRUE(vocabulary);
  EXPECT_EQ(vocabulary->size(), 3U);
  EXPECT_TRUE(vocabulary->contains(0) && vocabulary->contains(2));
  EXPECT_FALSE(vocabulary->contains(-1) || vocabulary->contains(3));
  EXPECT_EQ(vocabulary->bytes(0), "a");
  EXPECT_EQ(vocabulary->bytes(2), "c");
  EXPECT_EQ(vocabulary->bytes(-1), "");
  EXPECT_EQ(vocabulary->bytes(3), "");
}

TEST(Vocabulary, ReadsByteTokensInHexadecimal) {
  struct ByteText {
    const char* text;
    int byte;  // -1: a normal token
  };
  const std::array<ByteText, 20> kTexts{{{"<0x00>", 0},  {"<0x09>", 9},   {"<0x0A>", 10},  {"<0x0b>", 11},  {"<0x0F>", 15},
                                         {"<0x10>", 16}, {"<0x9A>", 154}, {"<0xA9>", 169}, {"<0xff>", 255}, {"<0xFa>", 250},
                                         {"<0x0G>", -1}, {"<0x0g>", -1},  {"<0x0@>", -1},  {"<0x0`>", -1},  {"<0x0/>", -1},
                                         {"<0x:0>", -1}, {"<0x1>", -1},   {"<0x123>", -1}, {"<1x00>", -1},  {"<0x00)", -1}}};
  for (const ByteText& one : kTexts) {
    TokenizerSpec spec = three_tokens();
    const TokenId token = add_token(spec, one.text);
    const Vocabulary vocabulary = Vocabulary::create(spec).value();
    EXPECT_EQ(vocabulary.type(token), one.byte < 0 ? Kind::normal : Kind::byte) << one.text;
    EXPECT_EQ(vocabulary.bytes(token), one.byte < 0 ? std::string(one.text) : std::string(1, static_cast<char>(one.byte))) << one.text;
    for (int byte = 0; byte < 256; ++byte)
      ASSERT_EQ(vocabulary.byte_token(static_cast<unsigned char>(byte)), byte == one.byte ? std::optional(token) : std::nullopt)
          << one.text;
    EXPECT_EQ(vocabulary.find_piece(one.text), one.byte < 0 ? std::optional(token) : std::nullopt) << "text never becomes a byte token";
  }
  TokenizerSpec spec = three_tokens();
  const TokenId token = add_token(spec, "<0x1>", Kind::byte);
  EXPECT_EQ(Vocabulary::create(spec)->bytes(token), "<0x1>") << "the type says byte, but the text names none";
}

// "both" is a user-defined token before the normal token of this text.
TEST(Vocabulary, TextBecomesNormalTokensFirstAndNeverControlTokens) {
  TokenizerSpec spec;
  spec.algorithm = TokenizerSpec::Algorithm::sentencepiece;
  const TokenId control = add_token(spec, "<c>", Kind::control), unknown = add_token(spec, "<u>", Kind::unknown);
  const TokenId user_both = add_token(spec, "both", Kind::user_defined), user = add_token(spec, "<mine>", Kind::user_defined);
  const TokenId both = add_token(spec, "both"), unused = add_token(spec, "unused", Kind::unused), word = add_token(spec, "\u2581w");
  add_token(spec, "", Kind::control);
  const Vocabulary pieces = Vocabulary::create(spec).value();
  EXPECT_EQ(pieces.find_piece("both"), both);
  EXPECT_EQ(pieces.find_piece("<mine>"), user);
  EXPECT_EQ(pieces.find_piece("unused"), unused);
  EXPECT_EQ(pieces.find_piece(" w"), word);
  for (const char* text : {"<c>", "<u>", "", "\u2581w", "none", "a text longer than each token"})
    EXPECT_FALSE(pieces.find_piece(text)) << text;
  EXPECT_EQ(pieces.find_added("<c>"), control);
  EXPECT_EQ(pieces.find_added("<u>"), unknown);
  EXPECT_EQ(pieces.find_added("both"), user_both);
  EXPECT_EQ(pieces.find_added("<mine>"), user);
  for (const char* text : {"unused", " w", "", "none"}) EXPECT_FALSE(pieces.find_added(text)) << text;
  EXPECT_EQ(pieces.max_token_bytes(), 6U);
  spec.algorithm = TokenizerSpec::Algorithm::bpe_bytes;
  const Vocabulary bytes = Vocabulary::create(spec).value();
  EXPECT_FALSE(bytes.find_piece("unused"));
  EXPECT_EQ(bytes.type(word), Kind::unused) << "no merge gives a character outside the byte alphabet";
  EXPECT_EQ(bytes.bytes(word), "\u2581w");
  EXPECT_EQ(bytes.find_piece("both"), both);
}

TEST(Vocabulary, AddedTokensOfByteLevelVocabulariesArePlainText) {
  TokenizerSpec spec;
  spec.algorithm = TokenizerSpec::Algorithm::bpe_bytes;
  const TokenId normal = add_token(spec, "\u0120a"), user = add_token(spec, "\u0120b", Kind::user_defined);
  const TokenId byte = add_token(spec, "<0x41>");
  const Vocabulary vocabulary = Vocabulary::create(spec).value();
  EXPECT_EQ(vocabulary.bytes(normal), " a");
  EXPECT_EQ(vocabulary.bytes(user), "\u0120b");
  EXPECT_EQ(vocabulary.type(byte), Kind::normal);
  EXPECT_FALSE(vocabulary.byte_token(0x41));
}

TEST(Vocabulary, ConvertsBetweenAlphabets) {
  std::string all;
  for (unsigned byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_EQ(from_byte_alphabet(to_byte_alphabet(all)), all);
  EXPECT_EQ(to_byte_alphabet(" ~\x7F\xA0\xA1\xAC\xAD\xAE\n"), "\u0120~\u0121\u0142\u00A1\u00AC\u0143\u00AE\u010A");
  for (const char* text : {" ", "\u00AD", "\u0144", "\u01FF", "\u0200", "\u4EBA", "a\xFF"}) EXPECT_FALSE(from_byte_alphabet(text)) << text;
  EXPECT_EQ(from_byte_alphabet("\u0143"), "\xAD");
  EXPECT_EQ(with_plain_spaces("\u2581a\u2581\u2581b\u2581"), " a  b ");
  EXPECT_EQ(with_plain_spaces("\u2582a"), "\u2582a");
  EXPECT_EQ(with_plain_spaces(""), "");
  EXPECT_EQ(with_marked_spaces(" a  b\n "), "\u2581a\u2581\u2581b\n\u2581");
}

}  // namespace
}  // namespace quire
