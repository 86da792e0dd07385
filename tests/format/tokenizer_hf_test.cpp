#include "format/tokenizer_hf.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "format/sample_tokenizer.h"
#include "format/temp_folder.h"
#include "format/tokenizer_file.h"

namespace quire {
namespace {

using testing::expect_error;
using testing::Json;
using testing::read;
using testing::TempFolder;
using Algorithm = TokenizerSpec::Algorithm;
using TokenType = TokenizerSpec::TokenType;

TEST(HfTokenizer, ReadsByteLevelBpe) {
  const auto spec = read(Json{});
  ASSERT_TRUE(spec) << spec.error().to_string();
  EXPECT_EQ(spec->algorithm, Algorithm::bpe_bytes);
  EXPECT_EQ(spec->tokens, (std::vector<std::string>{"a", "b", "ab", "<s>", "</s>"}));
  EXPECT_EQ(spec->types[2], TokenType::normal);
  EXPECT_EQ(spec->types[3], TokenType::control);
  EXPECT_EQ(spec->merges, std::vector<std::string>{"a b"});
  ASSERT_EQ(spec->split_patterns.size(), 1U);
  EXPECT_TRUE(spec->split_patterns[0].starts_with("'s|'t"));
  EXPECT_TRUE(spec->pre.empty());
  EXPECT_FALSE(spec->add_bos || spec->add_eos || spec->add_space_prefix || spec->ignore_merges);
}

TEST(HfTokenizer, CollectsSplitsInOrder) {
  Json json;
  json.normalizer = R"({"type": "Sequence", "normalizers": [{"type": "NFC"}]})";
  json.pre_tokenizer = R"({"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "\\d{1,3}"}, "behavior": "Isolated", "invert": false},
      {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true}, {"type": "Digits", "individual_digits": false}]},
      {"type": "Split", "pattern": {"String": "a.b"}, "behavior": "Removed", "invert": true},
      {"type": "Punctuation", "behavior": "Contiguous"},
      {"type": "ByteLevel", "add_prefix_space": true, "use_regex": false}]})";
  const auto spec = read(json);
  ASSERT_TRUE(spec) << spec.error().to_string();
  EXPECT_EQ(spec->split_patterns, (std::vector<std::string>{R"(\d{1,3})", R"(\p{N})", R"(\p{N}+)", R"(a\.b)", R"([\p{P}$+<=>^`|~]+)"}));
  EXPECT_EQ(spec->normalizer, "nfc");
  EXPECT_TRUE(spec->add_space_prefix);
  EXPECT_TRUE(spec->space_prefix_unless_present);
}

TEST(HfTokenizer, ReadsSentencePieceWithNormalizers) {
  Json json;
  json.normalizer = R"({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
                        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]})";
  json.pre_tokenizer = "null";
  json.model = R"({"type": "BPE", "byte_fallback": true, "unk_token": "<unk>", "merges": [["a", "b"]],
                   "vocab": {"a": 0, "b": 1, "ab": 2, "<0x0A>": 5, "<unk>": 6}})";
  const auto spec = read(json);
  ASSERT_TRUE(spec) << spec.error().to_string();
  EXPECT_EQ(spec->algorithm, Algorithm::sentencepiece);
  EXPECT_TRUE(spec->add_space_prefix);
  EXPECT_FALSE(spec->space_prefix_first_only || spec->space_prefix_unless_present);
  EXPECT_EQ(spec->merges, std::vector<std::string>{"a b"});
  EXPECT_TRUE(spec->scores.empty());
  EXPECT_EQ(spec->types[5], TokenType::byte);
  EXPECT_EQ(spec->types[6], TokenType::unknown);
  EXPECT_EQ(spec->unk, 6);
}

TEST(HfTokenizer, ReadsMetaspace) {
  struct Scheme {
    std::string name;
    bool prefix, first_only;
  };
  for (const Scheme& scheme : {Scheme{"always", true, false}, Scheme{"first", true, true}, Scheme{"never", false, false}}) {
    Json json;
    json.pre_tokenizer = R"({"type": "Metaspace", "replacement": "▁", "split": false, "prepend_scheme": ")" + scheme.name + "\"}";
    const auto spec = read(json);
    ASSERT_TRUE(spec) << spec.error().to_string();
    EXPECT_EQ(spec->algorithm, Algorithm::sentencepiece);
    EXPECT_EQ(spec->add_space_prefix, scheme.prefix);
    EXPECT_EQ(spec->space_prefix_first_only, scheme.first_only);
    EXPECT_EQ(spec->space_prefix_unless_present, scheme.prefix);
  }
}

TEST(HfTokenizer, IgnoresASplitAtReplacedSpaces) {
  Json json;
  json.normalizer = R"({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})";
  json.pre_tokenizer = R"({"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": false})";
  const auto spec = read(json);
  ASSERT_TRUE(spec) << spec.error().to_string();
  EXPECT_EQ(spec->algorithm, Algorithm::sentencepiece);
  EXPECT_FALSE(spec->add_space_prefix);
}

TEST(HfTokenizer, ThePostProcessorAddsBosAndEos) {
  Json json;
  json.post_processor = R"({"type": "Sequence", "processors": [{"type": "ByteLevel"}, {"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>"}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [3]}, "</s>": {"id": "</s>", "ids": [4]}}}]})";
  const auto spec = read(json);
  ASSERT_TRUE(spec) << spec.error().to_string();
  EXPECT_TRUE(spec->add_bos && spec->add_eos);
  EXPECT_EQ(spec->bos, 3);
  EXPECT_EQ(spec->eos, 4);
}

TEST(HfTokenizer, ThePostProcessorMayAddSeveralTokens) {
  const std::string tokens = R"("special_tokens": {"<s>": {"ids": [3, 1]}, "</s>": {"ids": [4]}}})";
  const std::string begin = R"({"SpecialToken": {"id": "<s>"}})", end = R"({"SpecialToken": {"id": "</s>"}})";
  Json json;
  json.post_processor =
      R"({"type": "TemplateProcessing", "single": [)" + begin + "," + end + R"(, {"Sequence": {"id": "A"}}, )" + end + "], " + tokens;
  const auto spec = read(json, R"({"bos_token": "</s>", "eos_token": "<s>"})");
  ASSERT_TRUE(spec) << spec.error().to_string();
  EXPECT_EQ(spec->before, (std::vector<TokenId>{3, 1, 4}));
  EXPECT_EQ(spec->after, std::vector<TokenId>{4}) << "the config has another EOS token";
  EXPECT_EQ(spec->bos, 4);
  EXPECT_EQ(spec->eos, 3);
  json.post_processor = R"({"type": "Sequence", "processors": [{"type": "TemplateProcessing", "single": [)" + begin +
                        R"(, {"Sequence": {"id": "A"}}], )" + tokens + R"(, {"type": "TemplateProcessing", "single": [)" + end +
                        R"(, {"Sequence": {"id": "A"}}], )" + tokens + "]}";
  EXPECT_EQ(read(json)->before, (std::vector<TokenId>{4, 3, 1})) << "a later template wraps an earlier one";
  EXPECT_TRUE(read(json, R"({"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>"})")->before.empty());
}

// The post-processor's tokens fit only one kind of transcript.
TEST(HfTokenizer, IgnoresThePostProcessorOfTranscripts) {
  Json json;
  json.post_processor = R"({"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<|startoftranscript|>"}}, {"SpecialToken": {"id": "<|notimestamps|>"}}, {"Sequence": {"id": "A"}},
               {"SpecialToken": {"id": "<|endoftext|>"}}],
    "special_tokens": {"<|startoftranscript|>": {"ids": [3]}, "<|notimestamps|>": {"ids": [4]}, "<|endoftext|>": {"ids": [3]}}})";
  const auto spec = read(json);
  ASSERT_TRUE(spec) << spec.error().to_string();
  EXPECT_FALSE(spec->add_bos || spec->add_eos);
}

TEST(HfTokenizer, AddedTokensKeepTheirFlagsAndGapsAreUnused) {
  Json json;
  json.added = R"([{"id": 7, "content": "<x>", "special": false, "lstrip": true, "rstrip": true, "single_word": true, "normalized": true},
                   {"id": 8, "content": "<y>", "special": true}])";
  const auto spec = read(json);
  ASSERT_TRUE(spec) << spec.error().to_string();
  EXPECT_EQ(spec->tokens.size(), 9U);
  EXPECT_EQ(spec->types[5], TokenType::unused);
  EXPECT_EQ(spec->types[7], TokenType::user_defined);
  ASSERT_EQ(spec->added_tokens.size(), 1U);
  const auto& flags = spec->added_tokens[0];
  EXPECT_EQ(flags.id, 7);
  EXPECT_TRUE(flags.strip_left && flags.strip_right && flags.single_word && flags.normalized);
}

TEST(HfTokenizer, ReadsSpecialTokensFromTheConfig) {
  const auto spec = read(Json{}, R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": null, "chat_template": "t"})");
  ASSERT_TRUE(spec) << spec.error().to_string();
  EXPECT_EQ(spec->bos, 3);
  EXPECT_EQ(spec->eos, 4);
  EXPECT_EQ(spec->pad, std::nullopt);
  EXPECT_FALSE(spec->add_bos);
  EXPECT_EQ(spec->eog, std::vector<TokenId>{4});
  EXPECT_EQ(spec->chat_template, "t");
}

TEST(HfTokenizer, SelectsTheDefaultOfNamedTemplates) {
  const auto spec = read(Json{}, R"({"chat_template": [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]})");
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->chat_template, "d");
}

TEST(TokenizerFromHf, SelectsTheToolTemplateWhenThereAreTools) {
  const auto spec = read(Json{}, R"({"chat_template": [{"name": "tool_use", "template": "tools\n"}, {"name": "default", "template": " d "},
                                                       {"name": "rag", "template": "r"}]})");
  ASSERT_TRUE(spec) << spec.error().to_string();
  EXPECT_EQ(spec->chat_template, "{%+ if tools +%}tools{%+ else +%} d {%+ endif +%}");
  EXPECT_EQ(read(Json{}, R"({"chat_template": [{"name": "tool_use", "template": "t"}]})")->chat_template, "t");
}

TEST(HfTokenizer, LlamaClassesOverrideBos) {
  const std::string config = R"({"tokenizer_class": "LlamaTokenizerFast", "bos_token": "<s>", "eos_token": "</s>")";
  EXPECT_TRUE(read(Json{}, config + "}")->add_bos);
  EXPECT_FALSE(read(Json{}, config + R"(, "add_bos_token": false})")->add_bos);
  EXPECT_TRUE(read(Json{}, config + R"(, "add_eos_token": true})")->add_eos);
  EXPECT_FALSE(read(Json{}, R"({"tokenizer_class": "LlamaTokenizer"})"));
}

TEST(InvalidHfTokenizer, ReportsUnsupportedPipelines) {
  const auto normalizer = [](std::string text) {
    Json json;
    json.normalizer = std::move(text);
    return json;
  };
  const auto pre_tokenizer = [](std::string text) {
    Json json;
    json.pre_tokenizer = std::move(text);
    return json;
  };
  const auto post_processor = [](std::string text) {
    Json json;
    json.post_processor = std::move(text);
    return json;
  };
  const ErrorCode code = ErrorCode::unsupported;
  expect_error(normalizer(R"({"type": "Lowercase"})"), code, "normalizer", "'Lowercase'");
  expect_error(normalizer(R"({"type": "Prepend", "prepend": "x"})"), code, "normalizer", "prefix");
  expect_error(normalizer(R"({"type": "Replace", "pattern": {"Regex": "x"}, "content": "y"})"), code, "normalizer", "Replace");
  expect_error(normalizer(R"({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})"), code, "", "changes spaces");
  expect_error(pre_tokenizer("null"), code, "tokenizer.json", "only byte-level BPE");
  expect_error(pre_tokenizer(R"({"type": "Whitespace"})"), code, "pre_tokenizer", "'Whitespace'");
  expect_error(pre_tokenizer(R"({"type": "Digits"})"), code, "", "without a ByteLevel");
  expect_error(pre_tokenizer(R"({"type": "Metaspace", "replacement": "▁"})"), code, "pre_tokenizer", "split = true");
  expect_error(pre_tokenizer(R"({"type": "Split", "pattern": {"String": "x"}, "behavior": "Removed"})"), code, "pre_tokenizer",
               "'Removed'");
  expect_error(pre_tokenizer(R"({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, {"type": "Digits"}]})"), code,
               "pre_tokenizer.pretokenizers[1]", "after the last step");
  expect_error(post_processor(R"({"type": "RobertaProcessing"})"), code, "post_processor", "'RobertaProcessing'");
}

// A list as long as the largest id would need half a gigabyte.
TEST(InvalidHfTokenizer, AnAbsurdIdTakesNoMemory) {
  for (const char* id : {"16000000", "2147483647", "-1"}) {
    Json json;
    json.added = R"([{"id": )" + std::string(id) + R"(, "content": "<s>", "special": true}])";
    expect_error(json, ErrorCode::corrupt, "added_tokens[0]", id);
    json = Json{};
    json.model = R"({"type": "BPE", "vocab": {"a": )" + std::string(id) + R"(}, "merges": []})";
    expect_error(json, ErrorCode::corrupt, "model.vocab", id);
  }
}

TEST(InvalidHfTokenizer, ReportsMalformedFields) {
  const auto model = [](std::string text) {
    Json json;
    json.model = std::move(text);
    return json;
  };
  const ErrorCode code = ErrorCode::corrupt;
  expect_error(model(R"({"type": "Unigram", "vocab": []})"), ErrorCode::unsupported, "model", "'Unigram'");
  expect_error(model(R"({"type": "BPE", "vocab": {"a": 0}, "merges": [], "dropout": 0.1})"), ErrorCode::unsupported, "model", "dropout");
  expect_error(model(R"({"type": "BPE", "vocab": {"a": 0}, "merges": [], "end_of_word_suffix": "</w>"})"), ErrorCode::unsupported, "model");
  expect_error(model(R"({"type": "BPE", "vocab": {}, "merges": []})"), code, "model.vocab", "empty");
  expect_error(model(R"({"type": "BPE", "vocab": {"a": -1}, "merges": []})"), code, "model.vocab", "-1");
  expect_error(model(R"({"type": "BPE", "vocab": {"a": 2000000000}, "merges": []})"), code, "model.vocab");
  expect_error(model(R"({"type": "BPE", "vocab": {"a": "x"}, "merges": []})"), code, "model.vocab", "no valid id");
  expect_error(model(R"({"type": "BPE", "vocab": {"a": 0, "b": 0}, "merges": []})"), code, "model.vocab", "share the id 0");
  expect_error(model(R"({"type": "BPE", "vocab": {"a": 3}, "merges": []})"), code, "added_tokens[0]", "share the id 3");
  for (const std::string merge : {"1", "\"ab\"", "\" b\"", "\"a \"", "\"a b c\"", "[\"a\"]", "[\"a\", \"\"]", "[\"a\", \"b c\"]", "[1, 2]"})
    expect_error(model(R"({"type": "BPE", "vocab": {"a": 0}, "merges": [)" + merge + "]}"), code, "model.merges[0]");
  Json added;
  added.added = R"([{"id": 3}])";
  expect_error(added, code, "added_tokens[0].content", "missing");
  Json post;
  post.post_processor =
      R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}], "special_tokens": {"<s>": {"ids": [99]}}})";
  expect_error(post, code, "single[0].SpecialToken", "token 99");
}

TEST(TokenizerFromHf, ReadsAFolder) {
  const TempFolder folder;
  EXPECT_EQ(tokenizer_from_hf(folder.path()).error().code, ErrorCode::not_found);
  folder.write("tokenizer.json", Json{}.text());
  EXPECT_TRUE(tokenizer_from_hf(folder.path())->chat_template.empty());
  folder.write("tokenizer_config.json", R"({"chat_template": "old", "eos_token": "</s>"})");
  folder.write("special_tokens_map.json", R"({"bos_token": "<s>", "eos_token": "<s>"})");
  folder.write("generation_config.json", R"({"eos_token_id": [1, 2]})");
  folder.write("config.json", R"({"eos_token_id": 0})");
  folder.write("chat_template.json", R"({"chat_template": "of the processor"})");
  EXPECT_EQ(tokenizer_from_hf(folder.path())->chat_template, "of the processor");
  folder.write("chat_template.jinja", "new");
  const auto spec = tokenizer_from_hf(folder.path());
  ASSERT_TRUE(spec) << spec.error().to_string();
  EXPECT_EQ(spec->bos, 3);
  EXPECT_EQ(spec->eos, 4);
  EXPECT_EQ(spec->eog, (std::vector<TokenId>{1, 2, 4}));
  EXPECT_EQ(spec->chat_template, "new");
  std::filesystem::create_directory(folder.path() + "/additional_chat_templates");
  folder.write("additional_chat_templates/tool_use.jinja", "with tools");
  folder.write("additional_chat_templates/rag.jinja", "with documents");
  EXPECT_EQ(tokenizer_from_hf(folder.path())->chat_template, "{%+ if tools +%}with tools{%+ else +%}new{%+ endif +%}");
}

TEST(TokenizerFromHf, ABrokenCompanionFileIsAnError) {
  const TempFolder folder;
  folder.write("tokenizer.json", Json{}.text());
  for (const std::string name :
       {"tokenizer_config.json", "special_tokens_map.json", "generation_config.json", "config.json", "chat_template.json"}) {
    const std::string path = folder.write(name, "{");
    const auto spec = tokenizer_from_hf(folder.path());
    ASSERT_FALSE(spec) << name;
    EXPECT_EQ(spec.error().field, path);
    std::filesystem::remove(path);
  }
}

TEST(TokenizerFromHf, IgnoresEndIdsBeyondTheVocabularyWithANote) {
  const TempFolder folder;
  folder.write("tokenizer.json", Json{}.text());
  folder.write("generation_config.json", R"({"eos_token_id": [5, 2, -1], "temperature": NaN, "top_p": Infinity})");
  const auto spec = tokenizer_from_hf(folder.path());
  ASSERT_TRUE(spec) << spec.error().to_string();
  EXPECT_EQ(spec->eog, (std::vector<TokenId>{2}));
  ASSERT_EQ(spec->notes.size(), 2U);
  EXPECT_NE(spec->notes[0].find("eos_token_id[0]: 5"), std::string::npos) << spec->notes[0];
  folder.write("generation_config.json", R"({"eos_token_id": "2"})");
  EXPECT_NE(tokenizer_from_hf(folder.path()).error().field.find("eos_token_id"), std::string::npos);
}

}  // namespace
}  // namespace quire
