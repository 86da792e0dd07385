#include "runtime/grammar/grammar_matcher.h"

#include <gtest/gtest.h>

#include <string_view>

#include "text/sample_vocabulary.h"

namespace quire {
namespace {

using Kind = StructuredOutput::Kind;

class GrammarMatcherTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_structured_output()) GTEST_SKIP() << "built without llguidance";
    TokenizerSpec spec = test::byte_level_spec();
    end_ = *spec.eos;
    tool_ = end_ + 1;
    spec.eog = {end_};
    num_tokens_ = static_cast<std::uint32_t>(spec.tokens.size()) + 40;  // the model has more ids than its tokenizer
    compiler_ = GrammarCompiler::create(spec, num_tokens_).value();
  }

  GrammarMatcher make(std::string text, Kind kind = Kind::json_schema) const {
    return compiler_->compile({.kind = kind, .text = std::move(text)}).value();
  }
  Error error_of(std::string text, Kind kind = Kind::json_schema) const {
    const auto matcher = compiler_->compile({.kind = kind, .text = std::move(text)});
    return matcher ? Error{ErrorCode::io, "", "was compiled", ""} : matcher.error();
  }
  bool allows(GrammarMatcher& matcher, TokenId token) const {
    std::vector<std::uint32_t> words((num_tokens_ + 31) / 32);
    EXPECT_TRUE(matcher.fill(words)) << matcher.error();
    for (std::uint32_t t = static_cast<std::uint32_t>(end_) + 2; t < num_tokens_; ++t)
      EXPECT_EQ(words[t / 32] >> t % 32 & 1U, 0U) << "an id without text";
    return (words[static_cast<std::size_t>(token) / 32] >> token % 32 & 1U) != 0;
  }
  // Byte by byte, as far as the masks allow.
  std::string_view taken(GrammarMatcher& matcher, std::string_view text) const {
    for (std::size_t i = 0; i < text.size(); ++i) {
      const auto token = static_cast<TokenId>(static_cast<unsigned char>(text[i]));
      if (!allows(matcher, token) || !matcher.accept(token)) return text.substr(0, i);
    }
    return text;
  }
  bool takes_whole(GrammarMatcher& matcher, std::string_view text) const {
    return taken(matcher, text) == text && allows(matcher, end_) && (matcher.is_over() || (matcher.accept(end_) && matcher.is_over()));
  }

  TokenId end_ = 0, tool_ = 0;
  std::uint32_t num_tokens_ = 0;
  std::shared_ptr<const GrammarCompiler> compiler_;
};

constexpr const char* kPerson =
    R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0}},"required":["name","age"],"additionalProperties":false})";

// Else a property could be written in another way, as one that may have any value.
TEST_F(GrammarMatcherTest, APropertyHasOneSpelling) {
  constexpr const char* kYear = "{\"type\":\"object\",\"properties\":{\"a\u00f1o\":{\"type\":\"integer\"}}}";
  for (const auto& [text, is_taken] : {std::pair("{\"a\u00f1o\": 1}", true),
                                       {"{\"a\\u00f1o\": 1}", false},
                                       {"{\"a\u00f1o\": []}", false},
                                       {"{\"other\": [\"\\n\\\\\"]}", true}}) {
    GrammarMatcher matcher = make(kYear);
    EXPECT_EQ(takes_whole(matcher, text), is_taken) << text;
  }
}

TEST_F(GrammarMatcherTest, ASchemaTakesWhatIsValidAndNothingElse) {
  const GrammarMatcher fresh = make(kPerson);
  const auto takes = [&](std::string_view text) {
    GrammarMatcher matcher = fresh.clone();
    return takes_whole(matcher, text);
  };
  EXPECT_TRUE(takes(R"({"name":"Ann","age":41})"));
  EXPECT_TRUE(takes("{ \"name\" : \"\xC3\xA9\\n\",\n \"age\": 0 }"));
  EXPECT_FALSE(takes(R"({"name":"Ann"})")) << "a required property";
  EXPECT_FALSE(takes(R"({"name":"Ann","age":-1})"));
  EXPECT_FALSE(takes(R"({"name":"Ann","age":1.5})"));
  EXPECT_FALSE(takes(R"({"name":"Ann","age":1,"x":2})"));
  EXPECT_FALSE(takes(R"({"name":"Ann","age":1} )"
                     "x"));
}

TEST_F(GrammarMatcherTest, AnAnswerEndsWhereItIsCompleteAndNoEarlier) {
  GrammarMatcher matcher = make("ab+", Kind::regex);
  EXPECT_FALSE(allows(matcher, end_));
  EXPECT_EQ(taken(matcher, "ab"), "ab");
  EXPECT_TRUE(allows(matcher, end_));
  EXPECT_TRUE(allows(matcher, 'b'));
  EXPECT_FALSE(allows(matcher, 'c'));
  EXPECT_FALSE(matcher.accept('c'));
  std::vector<std::uint32_t> words((num_tokens_ + 31) / 32);
  EXPECT_FALSE(matcher.fill(words));
  EXPECT_NE(matcher.error(), "");
}

TEST_F(GrammarMatcherTest, WhatCanOnlyGoOnOneWayIsOverWithoutAnEnd) {
  GrammarMatcher matcher = make("yes|no", Kind::regex);
  EXPECT_EQ(taken(matcher, "yes"), "yes");
  EXPECT_TRUE(matcher.is_over());
  EXPECT_TRUE(allows(matcher, end_));
  EXPECT_FALSE(allows(matcher, 's'));
}

TEST_F(GrammarMatcherTest, CopiesGoTheirOwnWaysAndTokensAreTakenBack) {
  GrammarMatcher matcher = make("(ab|cd)e", Kind::regex);
  GrammarMatcher other = matcher.clone();
  EXPECT_TRUE(matcher.accept('a'));
  EXPECT_TRUE(other.accept('c'));
  EXPECT_TRUE(allows(matcher, 'b'));
  EXPECT_TRUE(allows(other, 'd'));
  EXPECT_TRUE(matcher.accept('b'));
  EXPECT_TRUE(matcher.rollback(2));
  EXPECT_TRUE(allows(matcher, 'c'));
}

TEST_F(GrammarMatcherTest, CountsTheDraftsThatFitAndStaysWhereItIs) {
  GrammarMatcher matcher = make("hello(x|y)z", Kind::regex);
  const std::vector<TokenId> drafts = {'h', 'e', 'l', 'l', 'o', 'x', 'y', 'z'};
  EXPECT_EQ(matcher.count_valid(drafts), 6U);
  EXPECT_EQ(matcher.count_valid(drafts), 6U);
  EXPECT_EQ(matcher.count_valid(std::span(drafts).subspan(1)), 0U);
}

TEST_F(GrammarMatcherTest, AGrammarNamesControlTokensAndUserDefinedOnesAreText) {
  GrammarMatcher matcher = make("start: <|end|> \"<tool>\"", Kind::lark);
  EXPECT_FALSE(allows(matcher, '<'));
  EXPECT_TRUE(matcher.accept(end_));
  EXPECT_TRUE(allows(matcher, tool_));
  EXPECT_TRUE(matcher.accept(tool_));
  EXPECT_TRUE(matcher.is_over());
}

TEST_F(GrammarMatcherTest, WhatCannotBeHeldIsRefusedByName) {
  EXPECT_NE(error_of(R"({"type":"object","not":{"required":["a"]}})").message.find("not"), std::string::npos);
  EXPECT_NE(error_of(R"({"type":"array","uniqueItems":true})").message.find("uniqueItems"), std::string::npos);
  EXPECT_NE(error_of(R"({"type":"array","uniqueItems":true,"x-guidance":{"lenient":true}})").message.find("uniqueItems"), std::string::npos)
      << "a client does not say what is held";
  EXPECT_NE(error_of(R"({"$ref":"http://elsewhere/schema"})").message.find("$ref"), std::string::npos);
  EXPECT_NE(error_of(R"({"$ref":"#foo"})").message.find("$ref"), std::string::npos);
  EXPECT_NE(error_of(R"({"patternProperties":{"f.*":{},"b.*":true}})").message.find("patternProperties"), std::string::npos);
  for (const Error& error : {error_of("{"), error_of("3"), error_of("start: nothing", Kind::lark), error_of("(", Kind::regex),
                             error_of(std::string("a\0b", 3), Kind::regex), error_of(R"({"$ref":"#/$defs/none"})"),
                             error_of(R"({"$ref":"http://elsewhere/schema"})"), error_of(R"({"type":"string","pattern":"("})")}) {
    EXPECT_EQ(error.code, ErrorCode::invalid_argument) << error.message;
    EXPECT_EQ(error.field, "structured_output");
    EXPECT_FALSE(error.message.contains('\n'));
  }
}

TEST_F(GrammarMatcherTest, CountsMayBeWrittenWithAPoint) {
  const GrammarMatcher matcher = make(R"({"type":"array","items":{"type":"boolean"},"minItems":1.0,"maxItems":2.0})");
  for (const auto& [text, is_taken] : {std::pair("[true]", true), {"[true,false]", true}, {"[]", false}, {"[true,true,true]", false}}) {
    GrammarMatcher copy = matcher.clone();
    EXPECT_EQ(takes_whole(copy, text), is_taken) << text;
  }
  EXPECT_EQ(error_of(R"({"type":"array","maxItems":1.5})").field, "structured_output");
  EXPECT_EQ(error_of(R"({"type":"array","maxItems":1e300})").field, "structured_output");
}

TEST_F(GrammarMatcherTest, HostileGrammarsEndSoonAndDoNoHarm) {
  std::string deep, brackets(200'000, '(');
  for (int i = 0; i < 100'000; ++i) deep += R"({"items":)";
  EXPECT_EQ(error_of(deep).field, "structured_output");
  EXPECT_EQ(error_of(std::string(std::size_t{5} << 20, ' ')).code, ErrorCode::too_large);
  std::string wide = R"({"items":{"properties":{)";
  for (int i = 0; i < 20'000; ++i) wide += (i == 0 ? "\"p" : ",\"p") + std::to_string(i) + R"(":{"type":"integer"})";
  EXPECT_NE(error_of(wide + "}}}").message.find("'properties'"), std::string::npos);
  EXPECT_EQ(error_of(brackets, Kind::regex).field, "structured_output");
  EXPECT_EQ(error_of("start: " + brackets, Kind::lark).field, "structured_output");
  GrammarMatcher large = make("((((a{1,1000}){1,1000}){1,1000}){1,1000}){1,1000}", Kind::regex);
  std::vector<std::uint32_t> words((num_tokens_ + 31) / 32);
  std::uint32_t num_taken = 0;
  while (num_taken < 50 && large.fill(words) && large.accept('a')) ++num_taken;
  EXPECT_TRUE(num_taken == 50 || !large.error().empty()) << "a limit has its words";
  GrammarMatcher endless = make("start: a\na: b b b b b b b b b b\nb: a", Kind::lark);
  EXPECT_FALSE(endless.fill(words)) << "it has no beginning";
  EXPECT_NE(endless.error(), "");
  const GrammarMatcher recursive = make(R"({"$ref":"#/$defs/a","$defs":{"a":{"type":"array","items":{"$ref":"#/$defs/a"}}}})");
  GrammarMatcher matcher = recursive.clone();
  EXPECT_TRUE(takes_whole(matcher, "[[],[[[]]]]"));
}

}  // namespace
}  // namespace quire
