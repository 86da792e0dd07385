// Checks how the stages of a tokenizer.json become fields of the specification, and the error of each stage that is not supported.
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "format/sample_tokenizer.h"

namespace quire {
namespace {

using testing::expect_error;
using testing::Json;
using testing::read;
using PipelineAlgorithm = TokenizerSpec::Algorithm;

// A tokenizer.json with one stage before ByteLevel, which adds no pattern.
Json with_stage_before_bytes(const std::string& stage) {
  Json json;
  json.pre_tokenizer = R"({"type": "Sequence", "pretokenizers": [)" + stage + R"(, {"type": "ByteLevel", "use_regex": false}]})";
  return json;
}

TEST(HfPipeline, EachStageAddsItsPattern) {
  const std::string punctuation = R"([\p{P}$+<=>^`|~])";
  struct Stage {
    std::string stage, pattern;
  };
  for (const Stage& one : {Stage{R"({"type": "Punctuation"})", punctuation},
                           {R"({"type": "Punctuation", "behavior": null})", punctuation},
                           {R"({"type": "Punctuation", "behavior": "Isolated"})", punctuation},
                           {R"({"type": "Punctuation", "behavior": "Contiguous"})", punctuation + "+"},
                           {R"({"type": "Digits"})", R"(\p{N}+)"},
                           {R"({"type": "Digits", "individual_digits": true})", R"(\p{N})"},
                           {R"({"type": "Split", "pattern": {"Regex": "a+"}, "behavior": "Isolated"})", "a+"},
                           {R"({"type": "Split", "pattern": {"Regex": "a+"}, "behavior": "Isolated", "invert": true})", "a+"},
                           {R"({"type": "Split", "pattern": {"Regex": "a+"}, "behavior": "Removed", "invert": true})", "a+"},
                           {R"({"type": "Split", "pattern": {"String": "a\\^$.|?*+()[]{}-#b "}, "behavior": "Isolated"})",
                            R"(a\\\^\$\.\|\?\*\+\(\)\[\]\{\}\-\#b )"}}) {
    const auto spec = read(with_stage_before_bytes(one.stage));
    ASSERT_TRUE(spec) << one.stage << spec.error().to_string();
    EXPECT_EQ(spec->split_patterns, std::vector<std::string>{one.pattern}) << one.stage;
    EXPECT_EQ(spec->algorithm, PipelineAlgorithm::bpe_bytes);
  }
}

TEST(HfPipeline, RefusesStagesWithOtherBehaviors) {
  const std::string split = R"({"type": "Split", "pattern": {"Regex": "a"}, )";
  struct Refused {
    std::string stage, message;
  };
  for (const Refused& one :
       {Refused{R"({"type": "Punctuation", "behavior": "Removed"})", "Punctuation with behavior 'Removed' is not supported"},
        {R"({"type": "Punctuation", "behavior": "MergedWithPrevious"})", "Punctuation with behavior 'MergedWithPrevious' is not supported"},
        {split + R"("behavior": "Removed"})", "Split with behavior 'Removed' is not supported"},
        {split + R"("behavior": "Contiguous", "invert": true})", "Split with behavior 'Contiguous' is not supported"},
        {split + R"("behavior": "MergedWithNext"})", "Split with behavior 'MergedWithNext' is not supported"},
        {R"({"type": "BertPreTokenizer"})", "pre-tokenizer 'BertPreTokenizer' is not supported"}}) {
    const auto spec = read(with_stage_before_bytes(one.stage));
    ASSERT_FALSE(spec) << one.stage;
    EXPECT_EQ(spec.error().code, ErrorCode::unsupported);
    EXPECT_EQ(spec.error().field, "tokenizer.json: pre_tokenizer.pretokenizers[0]");
    EXPECT_EQ(spec.error().message, one.message);
  }
}

TEST(HfPipeline, ReportsFieldsOfStagesThatHaveAnotherType) {
  const std::string at = "tokenizer.json: pre_tokenizer.pretokenizers[0]";
  struct Wrong {
    std::string stage, field;
  };
  for (const Wrong& one : {Wrong{R"({"type": 3})", ".type"},
                           {"{}", ".type"},
                           {R"({"type": "Punctuation", "behavior": 3})", ".behavior"},
                           {R"({"type": "Digits", "individual_digits": 3})", ".individual_digits"},
                           {R"({"type": "Split", "behavior": "Isolated"})", ".pattern"},
                           {R"({"type": "Split", "pattern": {}, "behavior": "Isolated"})", ".pattern.String"},
                           {R"({"type": "Split", "pattern": {"Regex": 3}, "behavior": "Isolated"})", ".pattern.Regex"},
                           {R"({"type": "Split", "pattern": {"Regex": "a"}})", ".behavior"},
                           {R"({"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Isolated", "invert": 3})", ".invert"},
                           {R"({"type": "Sequence"})", ".pretokenizers"},
                           {R"({"type": "Sequence", "pretokenizers": {}})", ".pretokenizers"},
                           {R"({"type": "ByteLevel", "add_prefix_space": 3})", ".add_prefix_space"},
                           {R"({"type": "ByteLevel", "use_regex": 3})", ".use_regex"},
                           {R"({"type": "Metaspace", "replacement": 3})", ".replacement"},
                           {R"({"type": "Metaspace", "split": 3})", ".split"},
                           {R"({"type": "Metaspace", "split": false, "add_prefix_space": 3})", ".add_prefix_space"},
                           {R"({"type": "Metaspace", "split": false, "prepend_scheme": 3})", ".prepend_scheme"}}) {
    const auto spec = read(with_stage_before_bytes(one.stage));
    ASSERT_FALSE(spec) << one.stage;
    EXPECT_EQ(spec.error().code, ErrorCode::corrupt) << one.stage;
    EXPECT_EQ(spec.error().field, at + one.field) << one.stage;
  }
}

TEST(HfPipeline, ByteLevelAddsASpaceAndSplitsUnlessItSaysOtherwise) {
  Json json;
  json.pre_tokenizer = R"({"type": "ByteLevel"})";
  auto spec = read(json);
  ASSERT_TRUE(spec);
  EXPECT_TRUE(spec->add_space_prefix && spec->space_prefix_unless_present);
  EXPECT_EQ(spec->split_patterns.size(), 1U);
  json.pre_tokenizer = R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": false})";
  spec = read(json);
  ASSERT_TRUE(spec);
  EXPECT_FALSE(spec->add_space_prefix || spec->space_prefix_unless_present);
  EXPECT_TRUE(spec->split_patterns.empty());
}

TEST(HfPipeline, MetaspaceFollowsItsSchemeOrItsOlderFlag) {
  struct Scheme {
    std::string members;
    bool prefix, first_only;
  };
  for (const Scheme& one : {Scheme{"", true, false},
                            {R"(, "add_prefix_space": true)", true, false},
                            {R"(, "add_prefix_space": false)", false, false},
                            {R"(, "add_prefix_space": false, "prepend_scheme": "first")", true, true},
                            {R"(, "prepend_scheme": "never")", false, false}}) {
    Json json;
    json.pre_tokenizer = R"({"type": "Metaspace", "split": false)" + one.members + "}";
    const auto spec = read(json);
    ASSERT_TRUE(spec) << one.members;
    EXPECT_EQ(spec->add_space_prefix, one.prefix) << one.members;
    EXPECT_EQ(spec->space_prefix_unless_present, one.prefix) << one.members;
    EXPECT_EQ(spec->space_prefix_first_only, one.first_only) << one.members;
    EXPECT_TRUE(spec->replaces_spaces_after_added_tokens);
  }
  Json json;
  for (const auto& [members, message] : {std::pair(R"(, "prepend_scheme": "last")", "prepend_scheme 'last' is not supported"),
                                         {R"(, "replacement": "_")", "the only supported replacement is U+2581"},
                                         {R"(, "split": true)", "Metaspace with split = true is not supported"}}) {
    json.pre_tokenizer = std::string(R"({"type": "Metaspace")") +
                         (std::string_view(members).find("split") == std::string_view::npos ? R"(, "split": false)" : "") + members + "}";
    expect_error(json, ErrorCode::unsupported, "tokenizer.json: pre_tokenizer", message);
  }
  json.normalizer = R"({"type": "Prepend", "prepend": " "})";
  json.pre_tokenizer = R"({"type": "Metaspace", "split": false})";
  expect_error(json, ErrorCode::unsupported, "tokenizer.json: pre_tokenizer", "pre-tokenizer 'Metaspace' is not supported");
  json.normalizer = "null";
  json.pre_tokenizer = R"({"type": "Sequence", "pretokenizers": [{"type": "Digits"}, {"type": "Metaspace", "split": false}]})";
  expect_error(json, ErrorCode::unsupported, "tokenizer.json", "splits without a ByteLevel pre-tokenizer are not supported");
}

TEST(HfPipeline, HasAtMost64Stages) {
  const auto with_stages = [](std::size_t count) {
    std::string list;
    for (std::size_t i = 1; i < count; ++i) list += R"({"type": "Digits"}, )";
    Json json;
    json.pre_tokenizer = R"({"type": "Sequence", "pretokenizers": [)" + list + R"({"type": "ByteLevel", "use_regex": false}]})";
    return json;
  };
  const auto most = read(with_stages(64));
  ASSERT_TRUE(most) << most.error().to_string();
  EXPECT_EQ(most->split_patterns.size(), 63U);
  expect_error(with_stages(65), ErrorCode::unsupported, "tokenizer.json: pre_tokenizer", "has more than 64 stages, which is not supported");
}

TEST(HfPipeline, TemplatesRefuseIdsOutsideTheVocabulary) {
  const auto with_id = [](std::string_view id) {
    Json json;
    json.post_processor = R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}, {"Sequence": {"id": "A"}}],
        "special_tokens": {"x": {"ids": [)" +
                          std::string(id) + "]}}}";
    return json;
  };
  const auto last = read(with_id("4"));
  ASSERT_TRUE(last) << last.error().to_string();
  EXPECT_EQ(last->bos, 4);
  EXPECT_TRUE(last->add_bos);
  EXPECT_FALSE(last->add_eos);
  expect_error(with_id("5"), ErrorCode::corrupt, "post_processor.single[0].SpecialToken", "token 5 is outside the vocabulary of 5 tokens");
  expect_error(with_id("-1"), ErrorCode::corrupt, "post_processor.single[0].SpecialToken",
               "token -1 is outside the vocabulary of 5 tokens");
}

}  // namespace
}  // namespace quire
