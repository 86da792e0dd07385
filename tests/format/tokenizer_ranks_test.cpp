// Checks the readers of tekken.json and tiktoken.model: the tokens and their types, and the error of each defect.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/known_splits.h"
#include "format/temp_folder.h"
#include "format/tokenizer_file.h"
#include "format/tokenizer_hf.h"

namespace quire {
namespace {

using RankedType = TokenizerSpec::TokenType;

// A tekken.json with parts that a test may replace. It has 3 special tokens, and the tokens "a", " " and "ab".
struct TekkenJson {
  std::string size = "6";
  std::string num_special = "3";
  std::string pattern = R"("[a-z]+")";
  std::string version = R"("v7")";
  std::string vocab = R"([{"rank": 0, "token_bytes": "YQ=="}, {"rank": 1, "token_bytes": "IA=="}, {"rank": 2, "token_bytes": "YWI="},
                          {"rank": 3, "token_bytes": "YmV5b25k"}])";
  std::string specials = R"([{"rank": 1, "token_str": "<s>"}, {"rank": 0, "token_str": "<unk>"}])";  // empty: no list

  [[nodiscard]] std::string text() const {
    const std::string list = specials.empty() ? "" : R"(, "special_tokens": )" + specials;
    return fmt::format(
        R"({{"config": {{"default_vocab_size": {}, "default_num_special_tokens": {}, "pattern": {}, "version": {}}}, "vocab": {}{}}})",
        size, num_special, pattern, version, vocab, list);
  }
};

void expect_ranked_error(const Result<TokenizerSpec>& spec, std::string_view field, std::string_view message) {
  ASSERT_FALSE(spec) << field << ' ' << message;
  EXPECT_EQ(spec.error().code, ErrorCode::corrupt) << spec.error().to_string();
  EXPECT_EQ(spec.error().field, field);
  EXPECT_EQ(spec.error().message, message);
}

TEST(Tekken, HasItsControlTokensBeforeTheTokensWithRanks) {
  const auto spec = hf::read_tekken(TekkenJson{}.text(), "tekken.json");
  ASSERT_TRUE(spec) << spec.error().to_string();
  EXPECT_EQ(spec->tokens, (std::vector<std::string>{"<unk>", "<s>", "<SPECIAL_2>", "a", "\u0120", "ab"}));
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(spec->types[i], i < 3 ? RankedType::control : RankedType::normal) << i;
  EXPECT_EQ(spec->algorithm, TokenizerSpec::Algorithm::bpe_bytes);
  EXPECT_TRUE(spec->ids_are_ranks && spec->ignore_merges && spec->added_tokens_verbatim);
  EXPECT_EQ(spec->split_patterns, std::vector<std::string>{"[a-z]+"});
  EXPECT_EQ(spec->unk, 0);
  EXPECT_EQ(spec->bos, 1);
  EXPECT_EQ(spec->eos, std::nullopt);
  EXPECT_EQ(spec->pad, std::nullopt);
  EXPECT_TRUE(spec->add_bos);
  EXPECT_FALSE(spec->add_eos);
  EXPECT_EQ(spec->chat_template, hf::tekken_template("v7"));
}

TEST(Tekken, OlderFilesHaveTheListOfSpecialTokensOfMistral) {
  TekkenJson json;
  json.specials = "";
  const auto three = hf::read_tekken(json.text(), "tekken.json");
  ASSERT_TRUE(three) << three.error().to_string();
  EXPECT_EQ(std::vector<std::string>(three->tokens.begin(), three->tokens.begin() + 4),
            (std::vector<std::string>{"<unk>", "<s>", "</s>", "a"}));
  EXPECT_EQ(three->eos, 2);
  json.num_special = "22";
  json.size = "25";
  const auto all = hf::read_tekken(json.text(), "tekken.json");
  ASSERT_TRUE(all) << all.error().to_string();
  // Each rank is a token id of these models. mistral-common lists them in Tekkenizer.DEPRECATED_SPECIAL_TOKENS.
  EXPECT_EQ(fmt::format("{}", fmt::join(all->tokens, " ")),
            "<unk> <s> </s> [INST] [/INST] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS] [/TOOL_RESULTS] [TOOL_CALLS] [IMG] <pad> "
            "[IMG_BREAK] [IMG_END] [PREFIX] [MIDDLE] [SUFFIX] [SYSTEM_PROMPT] [/SYSTEM_PROMPT] [TOOL_CONTENT] <SPECIAL_20> <SPECIAL_21> "
            "a \u0120 ab");
  EXPECT_EQ(all->tokens.size(), 25U);
  EXPECT_EQ(all->pad, 11);
  EXPECT_EQ(all->types[21], RankedType::control);
  EXPECT_EQ(all->types[22], RankedType::normal);
}

TEST(Tekken, NamesOnlySpecialTokens) {
  TekkenJson json;
  json.vocab = R"([{"rank": 0, "token_bytes": "PHM+"}, {"rank": 1, "token_bytes": "PHBhZD4="}, {"rank": 2, "token_bytes": "YWI="}])";
  json.specials = R"([{"rank": 2, "token_str": "</s>"}])";
  const auto spec = hf::read_tekken(json.text(), "tekken.json");
  ASSERT_TRUE(spec) << spec.error().to_string();
  EXPECT_EQ(spec->tokens[3], "<s>");
  EXPECT_EQ(spec->bos, std::nullopt) << "a token of text is no special token";
  EXPECT_FALSE(spec->add_bos);
  EXPECT_EQ(spec->eos, 2);
  json.num_special = "0";
  json.size = "3";
  json.specials = "[]";
  const auto none = hf::read_tekken(json.text(), "tekken.json");
  ASSERT_TRUE(none) << none.error().to_string();
  EXPECT_EQ(none->tokens, (std::vector<std::string>{"<s>", "<pad>", "ab"}));
}

TEST(Tekken, ChatTemplateFollowsTheVersion) {
  TekkenJson json;
  for (const char* version : {"v7", "v11", "v13"}) {
    json.version = fmt::format("\"{}\"", version);
    const auto spec = hf::read_tekken(json.text(), "tekken.json");
    ASSERT_TRUE(spec);
    EXPECT_EQ(spec->chat_template, hf::tekken_template(version));
    EXPECT_NE(spec->chat_template.find("[INST]"), std::string::npos);
  }
  const std::string v7 = hf::tekken_template("v7"), v11 = hf::tekken_template("v11"), v13 = hf::tekken_template("v13");
  EXPECT_NE(v7.find("[TOOL_CALLS]["), std::string::npos) << "a list";
  EXPECT_NE(v11.find("[CALL_ID]"), std::string::npos);
  EXPECT_EQ(v13.find("[CALL_ID]"), std::string::npos);
  for (const std::string* with_id : {&v7, &v11}) EXPECT_NE(with_id->find("[TOOL_CONTENT]"), std::string::npos);
  EXPECT_EQ(v13.find("[TOOL_CONTENT]"), std::string::npos);
  for (const std::string* any : {&v7, &v11, &v13}) EXPECT_EQ(any->find("RESULT_ID"), std::string::npos);
  for (const std::string* last : {&v7, &v11}) EXPECT_EQ(last->find("place.tools < 0"), std::string::npos);
  EXPECT_NE(v13.find("place.tools < 0"), std::string::npos) << "tools come before the first message";
  for (const char* version : {R"("v3")", R"("")", "null"}) {
    json.version = version;
    const auto spec = hf::read_tekken(json.text(), "tekken.json");
    ASSERT_TRUE(spec) << version;
    EXPECT_EQ(spec->chat_template, "") << version;
  }
}

TEST(InvalidTekken, ReportsEachDefectWithItsField) {
  const auto with = [](std::string TekkenJson::* part, std::string text) {
    TekkenJson json;
    json.*part = std::move(text);
    return hf::read_tekken(json.text(), "t.json");
  };
  const std::string missing = "the field is missing";
  expect_ranked_error(hf::read_tekken("{}", "t.json"), "t.json: config", missing);
  expect_ranked_error(with(&TekkenJson::size, "null"), "t.json: config.default_vocab_size", missing);
  expect_ranked_error(with(&TekkenJson::size, "-1"), "t.json: config.default_vocab_size", "the number is out of range");
  expect_ranked_error(with(&TekkenJson::num_special, "null"), "t.json: config.default_num_special_tokens", missing);
  expect_ranked_error(with(&TekkenJson::pattern, "null"), "t.json: config.pattern", missing);
  expect_ranked_error(with(&TekkenJson::version, "7"), "t.json: config.version", "expected a string, found int64");
  expect_ranked_error(with(&TekkenJson::num_special, "6"), "t.json: config", "the vocabulary of 6 tokens cannot have 6 special tokens");
  expect_ranked_error(with(&TekkenJson::num_special, "7"), "t.json: config", "the vocabulary of 6 tokens cannot have 7 special tokens");
  expect_ranked_error(with(&TekkenJson::size, "8"), "t.json: vocab", "has 4 tokens, but config requires 5");
  expect_ranked_error(with(&TekkenJson::vocab, "null"), "t.json: vocab", missing);
  expect_ranked_error(with(&TekkenJson::vocab, "{}"), "t.json: vocab", "expected an array, found object");
  TekkenJson many;
  many.specials = "[]";
  many.num_special = "65536";
  many.size = "65539";
  EXPECT_TRUE(hf::read_tekken(many.text(), "t.json")) << "this many special tokens are allowed";
  many.num_special = "65537";
  many.size = "65540";
  expect_ranked_error(hf::read_tekken(many.text(), "t.json"), "t.json: config",
                      "the vocabulary of 65540 tokens cannot have 65537 special tokens");
}

TEST(InvalidTekken, RefusesTokensWithoutBytesOrWithAWrongRank) {
  const auto with_second = [](std::string_view entry) {
    TekkenJson json;
    json.vocab = fmt::format(R"([{{"rank": 0, "token_bytes": "YQ=="}}, {}, {{"rank": 2, "token_bytes": "YWI="}}])", entry);
    return hf::read_tekken(json.text(), "t.json");
  };
  EXPECT_TRUE(with_second(R"({"rank": 1, "token_bytes": "IA=="})"));
  const std::string invalid = "is not a valid token of rank 1";
  expect_ranked_error(with_second(R"({"rank": 0, "token_bytes": "IA=="})"), "t.json: vocab[1]", invalid);
  expect_ranked_error(with_second(R"({"rank": 2, "token_bytes": "IA=="})"), "t.json: vocab[1]", invalid);
  expect_ranked_error(with_second(R"({"rank": 1, "token_bytes": ""})"), "t.json: vocab[1]", invalid);
  expect_ranked_error(with_second(R"({"rank": 1, "token_bytes": "?"})"), "t.json: vocab[1]", invalid);
  expect_ranked_error(with_second(R"({"token_bytes": "IA=="})"), "t.json: vocab[1].rank", "the field is missing");
  expect_ranked_error(with_second(R"({"rank": 1})"), "t.json: vocab[1].token_bytes", "the field is missing");
}

TEST(InvalidTekken, RefusesSpecialTokensThatHaveNoPlace) {
  const auto with_specials = [](std::string specials) {
    TekkenJson json;
    json.specials = std::move(specials);
    return hf::read_tekken(json.text(), "t.json");
  };
  const std::string rest = " is empty, a duplicate or outside the 3 special tokens";
  EXPECT_TRUE(with_specials(R"([{"rank": 2, "token_str": "<x>"}])"));
  expect_ranked_error(with_specials(R"([{"rank": 3, "token_str": "<x>"}])"), "t.json: special_tokens[0]", "'<x>' with rank 3" + rest);
  expect_ranked_error(with_specials(R"([{"rank": 1, "token_str": ""}])"), "t.json: special_tokens[0]", "'' with rank 1" + rest);
  expect_ranked_error(with_specials(R"([{"rank": 1, "token_str": "<x>"}, {"rank": 1, "token_str": "<y>"}])"), "t.json: special_tokens[1]",
                      "'<y>' with rank 1" + rest);
  expect_ranked_error(with_specials(R"([{"token_str": "<x>"}])"), "t.json: special_tokens[0].rank", "the field is missing");
  expect_ranked_error(with_specials(R"([{"rank": 1}])"), "t.json: special_tokens[0].token_str", "the field is missing");
  expect_ranked_error(with_specials("{}"), "t.json: special_tokens", "expected an array, found object");
  expect_ranked_error(with_specials("7"), "t.json: special_tokens", "expected an array, found int64");
}

// Reads a tiktoken.model with the given members of tokenizer_config.json besides the class.
Result<TokenizerSpec> read_model_of_kimi(std::string_view text, std::string_view members = "") {
  const auto config = parse_json(fmt::format(R"({{"tokenizer_class": "TikTokenTokenizer"{}}})", members), "tokenizer_config.json");
  if (!config) return std::unexpected(config.error());
  hf::Files files;
  files.config.emplace(*config, "tokenizer_config.json");
  return hf::read_tiktoken(text, "tiktoken.model", files);
}

constexpr std::string_view kThreeRanks = "YQ== 0\nYWI= 2\r\n\nIA== 1";

TEST(Tiktoken, SpecialTokensFollowTheRanks) {
  const auto spec =
      read_model_of_kimi(kThreeRanks, R"(, "added_tokens_decoder": {"2": {"content": "below"}, "3": {"content": "[BOS]", "special": true},
      "5": {"content": "<think>"}, "6": {"content": "<b>", "special": false}, "258": {"content": "last", "special": true}, "259": {"content": "beyond"}})");
  ASSERT_TRUE(spec) << spec.error().to_string();
  ASSERT_EQ(spec->tokens.size(), 3U + 256U);
  ASSERT_EQ(spec->types.size(), 3U + 256U);
  EXPECT_EQ(std::vector<std::string>(spec->tokens.begin(), spec->tokens.begin() + 7),
            (std::vector<std::string>{"a", "\u0120", "ab", "[BOS]", "<|reserved_token_4|>", "<think>", "<b>"}));
  EXPECT_EQ(spec->tokens[257], "<|reserved_token_257|>");
  EXPECT_EQ(spec->tokens[258], "last");
  for (std::size_t i = 0; i < spec->types.size(); ++i)
    EXPECT_EQ(spec->types[i], i < 3 ? RankedType::normal : i == 5 || i == 6 ? RankedType::user_defined : RankedType::control) << i;
  EXPECT_EQ(spec->split_patterns, std::vector<std::string>{kKimiSplit});
  EXPECT_TRUE(spec->ids_are_ranks && spec->ignore_merges && spec->added_tokens_verbatim);
  EXPECT_FALSE(spec->add_bos || spec->add_eos);
  const auto plain = read_model_of_kimi(kThreeRanks);
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->tokens[3], "<|reserved_token_3|>");
}

TEST(InvalidTiktoken, ReportsTheLineThatIsNoToken) {
  for (const auto& [text, line] : {std::pair("YQ== 0\nYg== 0\n", "Yg== 0"),
                                   {"YQ==", "YQ=="},
                                   {"YQ== x", "YQ== x"},
                                   {"YQ== 0x", "YQ== 0x"},
                                   {"YQ== ", "YQ== "},
                                   {"YQ== -1", "YQ== -1"},
                                   {"YQ==  0", "YQ==  0"},
                                   {" 0", " 0"},
                                   {"? 0", "? 0"},
                                   {"YQ== 4294967296", "YQ== 4294967296"}})
    expect_ranked_error(read_model_of_kimi(text), "tiktoken.model", fmt::format("'{}' is not a token with a unique rank", line));
  expect_ranked_error(read_model_of_kimi("YQ== 7"), "tiktoken.model", "'YQ== 7' is not a token with a unique rank");
  expect_ranked_error(read_model_of_kimi("YQ== 6"), "tiktoken.model", "the file has 1 tokens, but ranks up to 7");
  expect_ranked_error(read_model_of_kimi("YQ== 1\n"), "tiktoken.model", "the file has 1 tokens, but ranks up to 2");
  expect_ranked_error(read_model_of_kimi(""), "tiktoken.model", "the file has 0 tokens, but ranks up to 0");
  expect_ranked_error(read_model_of_kimi("\n\r\n"), "tiktoken.model", "the file has 0 tokens, but ranks up to 0");
  expect_ranked_error(read_model_of_kimi(std::string(80, 'x')), "tiktoken.model",
                      "'" + std::string(64, 'x') + "' is not a token with a unique rank");
}

TEST(InvalidTiktoken, ReportsAddedTokensWithDefects) {
  const auto with_added = [](std::string_view added) {
    return read_model_of_kimi(kThreeRanks, fmt::format(R"(, "added_tokens_decoder": {})", added));
  };
  const std::string field = "tokenizer_config.json: added_tokens_decoder";
  EXPECT_TRUE(with_added("null"));
  EXPECT_TRUE(with_added(R"({"259": {}})")) << "a token outside the special tokens is not read";
  expect_ranked_error(with_added("[]"), field, "expected an object, found array");
  expect_ranked_error(with_added(R"({"x": {}})"), field, "'x' is not a token id");
  expect_ranked_error(with_added(R"({"3x": {}})"), field, "'3x' is not a token id");
  expect_ranked_error(with_added(R"({"": {}})"), field, "'' is not a token id");
  expect_ranked_error(with_added(R"({"3": null})"), field + ".3", "the field is missing");
  expect_ranked_error(with_added(R"({"3": {}})"), field + ".3.content", "the field is missing");
  expect_ranked_error(with_added(R"({"3": {"content": "a", "special": 1}})"), field + ".3.special", "expected true or false, found int64");
}

TEST(InvalidTiktoken, NeedsTheClassThatDefinesItsSplits) {
  const auto config = parse_json(R"({"tokenizer_class": "GPT2Tokenizer"})", "tokenizer_config.json");
  ASSERT_TRUE(config);
  hf::Files other;
  other.config.emplace(*config, "tokenizer_config.json");
  const hf::Files none;
  for (const hf::Files* files : std::vector<const hf::Files*>{&other, &none}) {
    const auto spec = hf::read_tiktoken(kThreeRanks, "tiktoken.model", *files);
    ASSERT_FALSE(spec);
    EXPECT_EQ(spec.error().code, ErrorCode::unsupported);
    EXPECT_EQ(spec.error().field, "tiktoken.model");
    EXPECT_NE(spec.error().message.find("TikTokenTokenizer"), std::string::npos);
  }
}

TEST(TokenizerFromHf, ReadsFilesWithRanksIfThereIsNoTokenizerJson) {
  const testing::TempFolder folder;
  const auto missing = tokenizer_from_hf(folder.path());
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::not_found);
  EXPECT_EQ(missing.error().field, folder.path() + "/tokenizer.json");
  folder.write("tiktoken.model", kThreeRanks);
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "TikTokenTokenizer", "bos_token": "<|reserved_token_3|>",
      "eos_token": "<|reserved_token_4|>", "chat_template": "from the config"})");
  const auto kimi = tokenizer_from_hf(folder.path());
  ASSERT_TRUE(kimi) << kimi.error().to_string();
  EXPECT_EQ(kimi->bos, 3);
  EXPECT_EQ(kimi->eos, 4);
  EXPECT_EQ(kimi->eog, std::vector<TokenId>{4});
  EXPECT_EQ(kimi->chat_template, "from the config");
  folder.write("tekken.json", TekkenJson{}.text());
  const auto tekken = tokenizer_from_hf(folder.path());
  ASSERT_TRUE(tekken) << tekken.error().to_string();
  EXPECT_EQ(tekken->tokens[0], "<unk>") << "tekken.json is read before tiktoken.model";
  folder.write("tekken.json", "{");
  const auto broken = tokenizer_from_hf(folder.path());
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().field, folder.path() + "/tekken.json");
}

}  // namespace
}  // namespace quire
