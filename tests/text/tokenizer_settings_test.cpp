// Checks how a tokenizer's settings follow from the fields of its specification.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "quire/text/tokenizer.h"
#include "text/sample_vocabulary.h"

namespace quire {
namespace {

using test::add_token;
using test::byte_level_spec;
using test::make_tokenizer;
using test::sentencepiece_spec;
using TokenIds = std::vector<TokenId>;
using SpecType = TokenizerSpec::TokenType;

constexpr EncodeOptions kNoSpecial{.add_special = false, .parse_special = true};

// "hello" with and without a space before it, in the two sample vocabularies.
const TokenIds kSpacedPiece{263}, kBarePieces{265, 260, 261}, kSpacedBytes{260}, kBareBytes{259};
constexpr TokenId kSpacePiece = 264, kEndPiece = 2;

TokenIds joined_ids(std::initializer_list<TokenIds> parts) {
  TokenIds all;
  for (const TokenIds& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

enum class Prefix : std::uint8_t { never, first, always, normalized };

struct PrefixFields {
  bool add, unless_present, first_only;
  Prefix pieces, bytes;  // with SentencePiece, and with byte-level BPE
};
constexpr PrefixFields kPrefixFields[] = {
    {false, false, false, Prefix::never, Prefix::never},     {false, true, false, Prefix::never, Prefix::never},
    {false, false, true, Prefix::never, Prefix::never},      {false, true, true, Prefix::never, Prefix::never},
    {true, false, false, Prefix::normalized, Prefix::never}, {true, false, true, Prefix::normalized, Prefix::never},
    {true, true, false, Prefix::always, Prefix::always},     {true, true, true, Prefix::first, Prefix::first}};

TokenizerSpec with_prefix_fields(TokenizerSpec spec, const PrefixFields& fields) {
  spec.add_space_prefix = fields.add;
  spec.space_prefix_unless_present = fields.unless_present;
  spec.space_prefix_first_only = fields.first_only;
  return spec;
}

TEST(TokenizerSettings, SpacePrefixOfSentencePieceFollowsItsThreeFields) {
  for (const PrefixFields& fields : kPrefixFields) {
    SCOPED_TRACE(testing::Message() << fields.add << fields.unless_present << fields.first_only);
    const auto tokenizer = make_tokenizer(with_prefix_fields(sentencepiece_spec(), fields));
    const auto ids = [&](std::string_view text) { return *tokenizer->encode(text, kNoSpecial); };
    const TokenIds at_start = fields.pieces == Prefix::never ? kBarePieces : kSpacedPiece;
    const bool is_each = fields.pieces == Prefix::always || fields.pieces == Prefix::normalized;
    const TokenIds later = is_each ? kSpacedPiece : kBarePieces;
    const TokenIds second_space = fields.pieces == Prefix::normalized ? TokenIds{kSpacePiece, 263} : kSpacedPiece;
    EXPECT_EQ(ids("hello"), at_start);
    EXPECT_EQ(ids(" hello"), second_space);
    EXPECT_EQ(ids("\u2581hello"), second_space);
    EXPECT_EQ(ids("hello</s>hello"), joined_ids({at_start, {kEndPiece}, later}));
    EXPECT_EQ(ids("</s>hello"), joined_ids({{kEndPiece}, later}));
    EXPECT_EQ(ids("</s> hello"), joined_ids({{kEndPiece}, second_space}));
    EXPECT_EQ(ids(""), TokenIds{});
    EXPECT_EQ(ids("</s>"), TokenIds{kEndPiece}) << "an empty part has no prefix";
    EXPECT_EQ(tokenizer->strips_leading_space(), fields.add);
    EXPECT_EQ(tokenizer->decode(kSpacedPiece), fields.add ? "hello" : " hello");
  }
}

TEST(TokenizerSettings, SpacePrefixOfByteLevelBpeIsOmittedIfPresent) {
  for (const PrefixFields& fields : kPrefixFields) {
    SCOPED_TRACE(testing::Message() << fields.add << fields.unless_present << fields.first_only);
    const TokenizerSpec spec = with_prefix_fields(byte_level_spec(), fields);
    const auto tokenizer = make_tokenizer(spec);
    const TokenId end = *spec.eos;
    const auto ids = [&](std::string_view text) { return *tokenizer->encode(text, kNoSpecial); };
    const TokenIds at_start = fields.bytes == Prefix::never ? kBareBytes : kSpacedBytes;
    const TokenIds later = fields.bytes == Prefix::always ? kSpacedBytes : kBareBytes;
    EXPECT_EQ(ids("hello"), at_start);
    EXPECT_EQ(ids(" hello"), kSpacedBytes);
    EXPECT_EQ(ids("hello<|end|>hello"), joined_ids({at_start, {end}, later}));
    EXPECT_EQ(ids("<|end|>hello"), joined_ids({{end}, later}));
    EXPECT_EQ(ids("\u2581"), joined_ids({fields.bytes == Prefix::never ? TokenIds{} : TokenIds{' '}, {0xE2, 0x96, 0x81}}))
        << "U+2581 is no space here";
    EXPECT_FALSE(tokenizer->strips_leading_space()) << "a leading space belongs to the text";
    EXPECT_EQ(tokenizer->decode(kSpacedBytes), " hello");
  }
}

TEST(TokenizerSettings, NormalizedAddedTokensAreSearchedAmongMarkedSpaces) {
  TokenizerSpec spec = sentencepiece_spec();
  spec.add_space_prefix = false;
  spec.added_tokens_verbatim = true;
  const TokenId token = add_token(spec, "h\u2581o\u2581h", SpecType::user_defined);
  spec.added_tokens = {{.id = token, .normalized = true}};
  EXPECT_EQ(make_tokenizer(spec)->encode("h o h", kNoSpecial), TokenIds{token});
  spec.replaces_spaces_after_added_tokens = true;
  EXPECT_EQ(make_tokenizer(spec)->encode("h o h", kNoSpecial), (TokenIds{265, kSpacePiece, 268, 259}))
      << "the text has a space, the token U+2581";
  EXPECT_EQ(make_tokenizer(spec)->encode("h\u2581o\u2581h", kNoSpecial), TokenIds{token});
  TokenizerSpec bytes = byte_level_spec();
  const TokenId spaced = add_token(bytes, "h h", SpecType::user_defined);
  bytes.scores.clear();
  bytes.added_tokens = {{.id = spaced, .normalized = true}};
  EXPECT_EQ(make_tokenizer(bytes)->encode("h h", kNoSpecial), TokenIds{spaced});
}

TEST(TokenizerSettings, ListsAroundATextReplaceBosAndEos) {
  TokenizerSpec spec = byte_level_spec();
  spec.bos = 'b';
  spec.eos = 'e';
  const auto ids = [&] { return *make_tokenizer(spec)->encode("x", {}); };
  EXPECT_EQ(ids(), TokenIds{'x'}) << "the tokens exist, but the file does not add them";
  spec.add_bos = true;
  EXPECT_EQ(ids(), (TokenIds{'b', 'x'}));
  spec.add_eos = true;
  EXPECT_EQ(ids(), (TokenIds{'b', 'x', 'e'}));
  spec.before = {1, 2};
  EXPECT_EQ(ids(), (TokenIds{1, 2, 'x', 'e'}));
  spec.after = {3};
  EXPECT_EQ(ids(), (TokenIds{1, 2, 'x', 3}));
  spec.add_bos = spec.add_eos = false;
  EXPECT_EQ(ids(), (TokenIds{1, 2, 'x', 3}));
  EXPECT_EQ(make_tokenizer(spec)->encode("", {}), (TokenIds{1, 2, 3}));
  EXPECT_EQ(make_tokenizer(spec)->encode("x", kNoSpecial), TokenIds{'x'});
}

TEST(TokenizerSettings, EndsOfGenerationAreSortedOnceAndIncludeEos) {
  TokenizerSpec spec = byte_level_spec();
  spec.bos = 9;
  spec.eos = 4;
  spec.eog = {5, 3, 5, 7};
  auto tokenizer = make_tokenizer(spec);
  EXPECT_EQ(TokenIds(tokenizer->eog().begin(), tokenizer->eog().end()), (TokenIds{3, 4, 5, 7}));
  EXPECT_EQ(tokenizer->bos(), 9);
  EXPECT_EQ(tokenizer->eos(), 4);
  spec.bos = spec.eos = std::nullopt;
  tokenizer = make_tokenizer(spec);
  EXPECT_EQ(TokenIds(tokenizer->eog().begin(), tokenizer->eog().end()), (TokenIds{3, 5, 7}));
  EXPECT_EQ(tokenizer->bos(), std::nullopt);
  EXPECT_EQ(tokenizer->eos(), std::nullopt);
}

TEST(TokenizerSettings, RefusesSpecificationsItCannotFollow) {
  struct Refused {
    TokenizerSpec spec;
    ErrorCode code;
    std::string field, message;
  };
  std::vector<Refused> all;
  const std::string enabled = "the file enables this token but does not define it";
  TokenizerSpec spec = byte_level_spec();
  spec.add_bos = true;
  all.push_back({spec, ErrorCode::corrupt, "tokenizer bos id", enabled});
  spec = byte_level_spec();
  spec.add_eos = true;
  spec.eos = std::nullopt;
  all.push_back({spec, ErrorCode::corrupt, "tokenizer eos id", enabled});
  spec = byte_level_spec();
  spec.normalizer = "nfkc";
  all.push_back({spec, ErrorCode::unsupported, "tokenizer normalizer", "\"nfkc\" is not supported"});
  spec = TokenizerSpec{};
  all.push_back({spec, ErrorCode::unsupported, "tokenizer", "the tokenizer algorithm is not supported"});
  spec.unsupported = "Unigram is not supported";
  all.push_back({spec, ErrorCode::unsupported, "tokenizer", "Unigram is not supported"});
  spec = sentencepiece_spec();
  spec.scores.clear();
  all.push_back({spec, ErrorCode::corrupt, "tokenizer scores", "the vocabulary has neither scores nor merges"});
  spec = byte_level_spec();
  spec.pre = "unheard";
  all.push_back({spec, ErrorCode::unsupported, "tokenizer.ggml.pre", "the pre-tokenizer \"unheard\" is not supported"});
  for (const Refused& refused : all) {
    const auto tokenizer = Tokenizer::create(refused.spec);
    ASSERT_FALSE(tokenizer) << refused.message;
    EXPECT_EQ(tokenizer.error().code, refused.code) << refused.message;
    EXPECT_EQ(tokenizer.error().field, refused.field);
    EXPECT_EQ(tokenizer.error().message, refused.message);
  }
  spec = byte_level_spec();
  spec.add_eos = true;
  EXPECT_TRUE(Tokenizer::create(spec));
  spec.normalizer = "nfc";
  EXPECT_TRUE(Tokenizer::create(spec));
}

TEST(TokenizerSettings, MergesOfSentencePieceReplaceItsScores) {
  TokenizerSpec spec = sentencepiece_spec();
  spec.add_space_prefix = false;
  const TokenId el = *make_tokenizer(spec)->find("el"), lo = *make_tokenizer(spec)->find("lo");
  spec.merges = {"l o", "e l"};
  EXPECT_EQ(make_tokenizer(spec)->encode("elo", kNoSpecial), (TokenIds{266, lo})) << "the first merge comes first";
  spec.merges = {"e l", "l o"};
  EXPECT_EQ(make_tokenizer(spec)->encode("elo", kNoSpecial), (TokenIds{el, 268}));
  spec.merges = {"l o"};
  EXPECT_EQ(make_tokenizer(spec)->encode("el", kNoSpecial), (TokenIds{266, 267})) << "no merge gives this token";
  spec.scores.clear();
  EXPECT_EQ(make_tokenizer(spec)->encode("lo", kNoSpecial), TokenIds{lo});
}

// The characters have no token, and the bytes of the second one have no token either.
TEST(TokenizerSettings, UnknownCharactersBecomeBytesOrOneUnknownToken) {
  TokenizerSpec spec;
  spec.algorithm = TokenizerSpec::Algorithm::sentencepiece;
  spec.unk = add_token(spec, "<unk>", SpecType::unknown);
  const TokenId a = add_token(spec, "a"), first = add_token(spec, "<0xC3>"), second = add_token(spec, "<0xA9>");
  EXPECT_EQ(make_tokenizer(spec)->encode("\u00E9", kNoSpecial), (TokenIds{first, second}));
  EXPECT_EQ(make_tokenizer(spec)->encode("\u00E8\u00E8a\u00E8", kNoSpecial), (TokenIds{0, a, 0})) << "only one of the bytes has a token";
  EXPECT_EQ(make_tokenizer(spec)->encode("\u00E8\u00E9\u00E8", kNoSpecial), (TokenIds{0, first, second, 0}));
  spec.unk = std::nullopt;
  EXPECT_EQ(make_tokenizer(spec)->encode("\u00E8a", kNoSpecial), TokenIds{a});
}

TEST(TokenizerSettings, BytesWithoutATokenBecomeTheUnknownToken) {
  TokenizerSpec spec;
  spec.algorithm = TokenizerSpec::Algorithm::bpe_bytes;
  const TokenId unknown = add_token(spec, "<unk>", SpecType::unknown), a = add_token(spec, "a");
  spec.scores.clear();
  EXPECT_EQ(make_tokenizer(spec)->encode("aba", kNoSpecial), (TokenIds{a, a}));
  spec.unk = unknown;
  EXPECT_EQ(make_tokenizer(spec)->encode("abba", kNoSpecial), (TokenIds{a, unknown, unknown, a}));
}

TEST(TokenizerSettings, EqualScoresMergeFromLeftToRight) {
  TokenizerSpec spec;
  spec.algorithm = TokenizerSpec::Algorithm::sentencepiece;
  for (const char* text : {"a", "b", "c"}) add_token(spec, text, SpecType::normal, -9.0F);
  const TokenId ab = add_token(spec, "ab", SpecType::normal, -1.0F), bc = add_token(spec, "bc", SpecType::normal, -1.0F);
  EXPECT_EQ(make_tokenizer(spec)->encode("abc", kNoSpecial), (TokenIds{ab, 2}));
  spec.scores[static_cast<std::size_t>(bc)] = -0.5F;
  EXPECT_EQ(make_tokenizer(spec)->encode("abc", kNoSpecial), (TokenIds{0, bc})) << "a higher score merges first";
}

TEST(TokenizerSettings, LimitCountsAllTokensOfTheResult) {
  TokenizerSpec spec = byte_level_spec();
  spec.before = {1};
  spec.after = {2, 3};
  const auto tokenizer = make_tokenizer(spec);
  EXPECT_EQ(tokenizer->encode("x", {.max_tokens = 4})->size(), 4U);
  const auto over = tokenizer->encode("x", {.max_tokens = 3});
  ASSERT_FALSE(over);
  EXPECT_EQ(over.error().code, ErrorCode::too_large);
  EXPECT_EQ(over.error().field, "text");
  EXPECT_EQ(over.error().message, "the text has more than 3 tokens");
  EXPECT_EQ(over.error().remedy, "shorten the text");
}

TEST(TokenizerSettings, AnswersQuestionsAboutSingleTokens) {
  const TokenizerSpec spec = sentencepiece_spec();
  const auto tokenizer = make_tokenizer(spec);
  EXPECT_EQ(tokenizer->vocab_size(), spec.tokens.size());
  for (TokenId token = -1; token <= static_cast<TokenId>(spec.tokens.size()); ++token)
    EXPECT_EQ(tokenizer->is_special(token), token >= 0 && token <= 2) << token;
  EXPECT_EQ(tokenizer->find("</s>"), kEndPiece);
  EXPECT_EQ(tokenizer->find(" hello"), 263);
  EXPECT_EQ(tokenizer->find("hellohello"), std::nullopt);
  EXPECT_EQ(tokenizer->token_bytes(3 + 'A'), "A");
  EXPECT_EQ(tokenizer->token_bytes(263), " hello");
}

}  // namespace
}  // namespace quire
