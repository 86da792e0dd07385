#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "format/gguf_builder.h"
#include "format/tokenizer_file.h"

namespace quire {
namespace {

using testing::Bytes;
using testing::GgufBuilder;
using Algorithm = TokenizerSpec::Algorithm;
using TokenType = TokenizerSpec::TokenType;

Result<TokenizerSpec> read(const GgufBuilder& builder) {
  const Bytes bytes = builder.build();
  const auto file = GgufFile::parse(bytes.view());
  if (!file) return std::unexpected(file.error());
  return tokenizer_from_gguf(*file);
}

GgufBuilder byte_level(std::string_view pre) {
  GgufBuilder builder;
  builder.string("tokenizer.ggml.model", "gpt2")
      .string("tokenizer.ggml.pre", pre)
      .strings("tokenizer.ggml.tokens", {"a", "b", "ab", "<s>", "<|im_end|>"})
      .array<std::int32_t>("tokenizer.ggml.token_type", GgufValueType::i32, {1, 1, 1, 3, 3})
      .strings("tokenizer.ggml.merges", {"a b"});
  return builder;
}

GgufBuilder sentencepiece() {
  GgufBuilder builder;
  builder.string("tokenizer.ggml.model", "llama")
      .strings("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "<0x0A>", "a"})
      .array<float>("tokenizer.ggml.scores", GgufValueType::f32, {0, 0, 0, 0, -1.5F})
      .array<std::int32_t>("tokenizer.ggml.token_type", GgufValueType::i32, {2, 3, 3, 6, 1});
  return builder;
}

void expect_error(const GgufBuilder& builder, std::string_view field) {
  const auto spec = read(builder);
  ASSERT_FALSE(spec) << field;
  EXPECT_EQ(spec.error().code, ErrorCode::corrupt);
  EXPECT_EQ(spec.error().field, field) << spec.error().to_string();
}

TEST(TokenizerFromGguf, ReadsByteLevelBpe) {
  GgufBuilder builder = byte_level("smollm");
  builder.scalar("tokenizer.ggml.bos_token_id", GgufValueType::u32, 3U)
      .scalar("tokenizer.ggml.eos_token_id", GgufValueType::u32, 4U)
      .string("tokenizer.chat_template", "{{ messages }}");
  const auto spec = read(builder);
  ASSERT_TRUE(spec) << spec.error().to_string();
  EXPECT_EQ(spec->algorithm, Algorithm::bpe_bytes);
  EXPECT_EQ(spec->pre, "smollm");
  EXPECT_EQ(spec->tokens, (std::vector<std::string>{"a", "b", "ab", "<s>", "<|im_end|>"}));
  EXPECT_EQ(spec->types[3], TokenType::control);
  EXPECT_EQ(spec->merges, std::vector<std::string>{"a b"});
  EXPECT_EQ(spec->bos, 3);
  EXPECT_EQ(spec->eos, 4);
  EXPECT_FALSE(spec->add_bos);
  EXPECT_FALSE(spec->add_space_prefix);
  EXPECT_EQ(spec->eog, std::vector<TokenId>{4});
  EXPECT_EQ(spec->chat_template, "{{ messages }}");
}

TEST(TokenizerFromGguf, ReadsScoresOfAnyTypeIfTheyAreUsed) {
  GgufBuilder bytes = byte_level("tekken");
  bytes.scalar("tokenizer.ggml.bos_token_id", GgufValueType::u32, 3U)
      .array<std::int32_t>("tokenizer.ggml.scores", GgufValueType::i32, {0, 0, 0, 0, 0});
  EXPECT_TRUE(read(bytes)) << "converters write this type from mistral-common";
  GgufBuilder pieces;
  pieces.string("tokenizer.ggml.model", "llama")
      .strings("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "a"})
      .array<std::int32_t>("tokenizer.ggml.scores", GgufValueType::i32, {0, 0, 0, -2});
  const auto spec = read(pieces);
  ASSERT_TRUE(spec) << spec.error().to_string();
  EXPECT_EQ(spec->scores, (std::vector<float>{0, 0, 0, -2}));
}

TEST(TokenizerFromGguf, KimiIdsAreRanksWhenTheFileHasNoMerges) {
  GgufBuilder kimi;
  kimi.string("tokenizer.ggml.model", "gpt2").string("tokenizer.ggml.pre", "kimi-k2").strings("tokenizer.ggml.tokens", {"a", "b", "ab"});
  const auto spec = read(kimi);
  ASSERT_TRUE(spec) << spec.error().to_string();
  EXPECT_TRUE(spec->ids_are_ranks && spec->ignore_merges);
  kimi.strings("tokenizer.ggml.merges", {"a b"});
  EXPECT_FALSE(read(kimi)->ids_are_ranks);
}

TEST(TokenizerFromGguf, SelectsTheToolTemplateWhenThereAreTools) {
  GgufBuilder builder = byte_level("smollm");
  builder.string("tokenizer.chat_template", "d").string("tokenizer.chat_template.tool_use", "t").string("tokenizer.chat_template.rag", "r");
  EXPECT_EQ(read(builder)->chat_template, "{%+ if tools +%}t{%+ else +%}d{%+ endif +%}");
}

TEST(TokenizerFromGguf, SpecialTokensOfPhi3StripTheFollowingSpace) {
  const auto stripping = [](const char* key, const char* value) {
    GgufBuilder builder;
    builder.string("tokenizer.ggml.model", "llama")
        .string(key, value)
        .strings("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "<0x0A>", "a", "<|endoftext|>", "<|user|>", "<|mine|>"})
        .array<float>("tokenizer.ggml.scores", GgufValueType::f32, {0, 0, 0, 0, -1.5F, 0, 0, 0})
        .array<std::int32_t>("tokenizer.ggml.token_type", GgufValueType::i32, {2, 3, 3, 6, 1, 3, 3, 4});
    std::vector<TokenId> ids;
    const auto spec = read(builder);
    EXPECT_TRUE(spec) << spec.error().to_string();
    for (const TokenizerSpec::AddedToken& token : spec->added_tokens) {
      EXPECT_TRUE(token.strip_right && !token.strip_left);
      ids.push_back(token.id);
    }
    return ids;
  };
  const std::vector<TokenId> all{2, 6, 7};
  EXPECT_EQ(stripping("general.name", "My Phi-3 Medium tuned"), all);
  EXPECT_EQ(stripping("general.name", "PHI3-vision"), all);
  EXPECT_EQ(stripping("general.architecture", "phi3"), all) << "newer converters write the name with spaces";
  EXPECT_TRUE(stripping("general.name", "phi-2").empty());
  EXPECT_TRUE(stripping("general.architecture", "llama").empty());
}

TEST(TokenizerFromGguf, ThePreTokenizerGivesDefaultsForMissingKeys) {
  GgufBuilder llama3 = byte_level("llama-bpe");
  llama3.scalar("tokenizer.ggml.bos_token_id", GgufValueType::u32, 3U);
  const auto spec = read(llama3);
  ASSERT_TRUE(spec);
  EXPECT_TRUE(spec->ignore_merges);
  EXPECT_TRUE(spec->add_bos);
  llama3.scalar("tokenizer.ggml.add_bos_token", GgufValueType::boolean, std::uint8_t{0});
  EXPECT_FALSE(read(llama3)->add_bos);
  EXPECT_EQ(read(byte_level("qwen2"))->normalizer, "nfc");
}

TEST(TokenizerFromGguf, ReadsSentencePiece) {
  const auto spec = read(sentencepiece());
  ASSERT_TRUE(spec) << spec.error().to_string();
  EXPECT_EQ(spec->algorithm, Algorithm::sentencepiece);
  EXPECT_EQ(spec->scores[4], -1.5F);
  EXPECT_EQ(spec->types, (std::vector{TokenType::unknown, TokenType::control, TokenType::control, TokenType::byte, TokenType::normal}));
  EXPECT_TRUE(spec->add_bos);
  EXPECT_TRUE(spec->add_space_prefix);
  EXPECT_EQ(spec->bos, 1);
  EXPECT_EQ(spec->eos, 2);
  EXPECT_EQ(spec->unk, 0);
}

TEST(TokenizerFromGguf, EndOfTurnTokensEndAGenerationOnlyWhenTheyAreControlTokens) {
  GgufBuilder builder = byte_level("smollm");
  EXPECT_EQ(read(builder)->eog, std::vector<TokenId>{4});
  GgufBuilder plain;
  plain.string("tokenizer.ggml.model", "gpt2").strings("tokenizer.ggml.tokens", {"a", "<|im_end|>"}).strings("tokenizer.ggml.merges", {});
  EXPECT_TRUE(read(plain)->eog.empty());
  const auto control = [](std::vector<std::string> marks) {
    GgufBuilder made;
    const std::vector<std::int32_t> types(marks.size(), 3);
    made.string("tokenizer.ggml.model", "gpt2").strings("tokenizer.ggml.tokens", marks).strings("tokenizer.ggml.merges", {});
    made.array("tokenizer.ggml.token_type", GgufValueType::i32, types);
    return read(made)->eog;
  };
  EXPECT_EQ(control({"<|end|>", "<|start|>"}), std::vector<TokenId>{0}) << "Phi-3's end token";
  EXPECT_EQ(control({"<|end|>", "<|call|>", "<|return|>"}), (std::vector<TokenId>{1, 2}))
      << "Harmony: the end of a message is not the end of the answer";
}

TEST(TokenizerFromGguf, ReportsOtherKindsAsUnsupportedWithTheReason) {
  GgufBuilder bert;
  bert.string("tokenizer.ggml.model", "bert").strings("tokenizer.ggml.tokens", {"[CLS]", "a"});
  const auto spec = read(bert);
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->algorithm, Algorithm::unsupported);
  EXPECT_NE(spec->unsupported.find("'bert'"), std::string::npos);
  EXPECT_EQ(spec->tokens.size(), 2U);
  EXPECT_EQ(read(GgufBuilder{})->algorithm, Algorithm::unsupported);
}

TEST(TokenizerFromGguf, MinusOneMeansNoToken) {
  GgufBuilder builder = byte_level("smollm");
  builder.scalar("tokenizer.ggml.bos_token_id", GgufValueType::u32, ~std::uint32_t{0});
  EXPECT_EQ(read(builder)->bos, std::nullopt);
}

TEST(TokenizerFromGguf, IgnoresAnIdBeyondTheVocabularyWithANote) {
  GgufBuilder builder = byte_level("smollm");
  builder.scalar("tokenizer.ggml.eos_token_id", GgufValueType::u32, 5U);
  const auto spec = read(builder);
  ASSERT_TRUE(spec) << spec.error().to_string();
  EXPECT_EQ(spec->eos, std::nullopt);
  ASSERT_EQ(spec->notes.size(), 1U);
  EXPECT_NE(spec->notes[0].find("tokenizer.ggml.eos_token_id: 5"), std::string::npos);
}

TEST(InvalidGgufTokenizer, AreRefusedWithTheKey) {
  GgufBuilder id = byte_level("smollm");
  id.scalar("tokenizer.ggml.eos_token_id", GgufValueType::u32, 5U);
  id.scalar("tokenizer.ggml.add_eos_token", GgufValueType::boolean, std::uint8_t{1});
  expect_error(id, "tokenizer.ggml.eos_token_id");
  GgufBuilder bos = byte_level("smollm");
  bos.scalar("tokenizer.ggml.add_bos_token", GgufValueType::boolean, std::uint8_t{1});
  expect_error(bos, "tokenizer.ggml.bos_token_id");
  GgufBuilder type = sentencepiece();
  type.string("tokenizer.ggml.add_bos_token", "yes");
  expect_error(type, "tokenizer.ggml.add_bos_token");
  GgufBuilder missing;
  missing.string("tokenizer.ggml.model", "gpt2");
  expect_error(missing, "tokenizer.ggml.tokens");
  missing.strings("tokenizer.ggml.tokens", {"a"});
  expect_error(missing, "tokenizer.ggml.merges");
  GgufBuilder scores;
  scores.string("tokenizer.ggml.model", "llama").strings("tokenizer.ggml.tokens", {"a", "b"});
  expect_error(scores, "tokenizer.ggml.scores");
  scores.array<float>("tokenizer.ggml.scores", GgufValueType::f32, {1.0F});
  expect_error(scores, "tokenizer.ggml.scores");
}

TEST(InvalidGgufTokenizer, ChecksLists) {
  for (const std::string_view merge : {"", "ab", " b", "a ", "a"}) {
    GgufBuilder builder;
    builder.string("tokenizer.ggml.model", "gpt2")
        .strings("tokenizer.ggml.tokens", {"a"})
        .strings("tokenizer.ggml.merges", {std::string(merge)});
    expect_error(builder, "tokenizer.ggml.merges");
  }
  for (const std::vector<std::int32_t>& types : {std::vector<std::int32_t>{1, 1}, {7}, {-1}}) {
    GgufBuilder builder;
    builder.string("tokenizer.ggml.model", "gpt2").strings("tokenizer.ggml.tokens", {"a"});
    builder.array("tokenizer.ggml.token_type", GgufValueType::i32, types).strings("tokenizer.ggml.merges", {});
    expect_error(builder, "tokenizer.ggml.token_type");
  }
  GgufBuilder empty;
  empty.string("tokenizer.ggml.model", "gpt2").strings("tokenizer.ggml.tokens", {});
  expect_error(empty, "tokenizer.ggml.tokens");
}

TEST(RealFiles, TheDefaultModel) {
  const char* path = std::getenv("QUIRE_TEST_MODEL");
  if (!path) GTEST_SKIP() << "QUIRE_TEST_MODEL names no model; ./dev test sets it";
  const auto file = GgufFile::open(path);
  ASSERT_TRUE(file) << file.error().to_string();
  EXPECT_EQ(file->get<std::string>("general.architecture").value(), "llama");
  EXPECT_EQ(file->tensors().size(), 272U);
  EXPECT_EQ(file->find_tensor("token_embd.weight")->columns(), 576U);
  EXPECT_EQ(file->find_tensor("token_embd.weight")->rows(), 49152U);
  const auto spec = tokenizer_from_gguf(*file);
  ASSERT_TRUE(spec) << spec.error().to_string();
  EXPECT_EQ(spec->algorithm, Algorithm::bpe_bytes);
  EXPECT_EQ(spec->tokens.size(), 49152U);
  EXPECT_EQ(spec->merges.size(), 48900U);
  EXPECT_EQ(spec->tokens[2], "<|im_end|>");
  EXPECT_EQ(spec->eos, 2);
  EXPECT_EQ(spec->eog, (std::vector<TokenId>{0, 2}));
  EXPECT_FALSE(spec->chat_template.empty());
}

TEST(RealFiles, EveryVocabularyParses) {
  const char* folder = std::getenv("QUIRE_TEST_VOCABS");
  if (!folder) GTEST_SKIP() << "QUIRE_TEST_VOCABS names no folder; ./dev test sets it";
  std::vector<std::string> unsupported;
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".gguf") continue;
    ++count;
    const auto file = GgufFile::open(entry.path().string());
    ASSERT_TRUE(file) << file.error().to_string();
    const auto spec = tokenizer_from_gguf(*file);
    ASSERT_TRUE(spec) << entry.path() << spec.error().to_string();
    EXPECT_EQ(spec->types.size(), spec->tokens.size());
    if (spec->algorithm == Algorithm::unsupported) unsupported.push_back(entry.path().stem().string());
  }
  std::ranges::sort(unsupported);
  EXPECT_EQ(count, 19);
  EXPECT_EQ(unsupported, (std::vector<std::string>{"ggml-vocab-bert-bge", "ggml-vocab-gemma-4", "ggml-vocab-nomic-bert-moe"}));
}

}  // namespace
}  // namespace quire
