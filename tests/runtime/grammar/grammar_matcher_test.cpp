#include "runtime/grammar/grammar_matcher.h"

#include <fmt/format.h>
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
  // Accepts the text byte by byte as far as the masks allow, and returns the accepted part.
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

TEST_F(GrammarMatcherTest, EnforcesAPropertyInEachSpellingOfItsName) {
  constexpr const char* kYear = "{\"type\":\"object\",\"properties\":{\"a\u00f1o\":{\"type\":\"integer\"}}}";
  for (const auto& [text, is_taken] : {std::pair("{\"a\u00f1o\": 1}", true),
                                       {"{\"a\\u00f1o\": 1}", true},
                                       {"{\"a\\u00f1o\": []}", false},
                                       {"{\"a\u00f1o\": []}", false},
                                       {"{\"\\u0061\\u00F1o\": []}", false},
                                       {"{\"\\u0061\\u00F1o\": 1}", false},
                                       {"{\"\\u006Fther\": 1}", false},
                                       {"{\"/ot\u00e9r\": 1}", true},
                                       {"{\"\\/ot\\u00e9r\\u003C\": 1}", true},
                                       {"{\"other\": [\"\\n\\\\\"]}", true}}) {
    GrammarMatcher matcher = make(kYear);
    EXPECT_EQ(takes_whole(matcher, text), is_taken) << text;
  }
}

TEST_F(GrammarMatcherTest, ASchemaAcceptsOnlyValidText) {
  const GrammarMatcher fresh = make(kPerson);
  const auto takes = [&](std::string_view text) {
    GrammarMatcher matcher = fresh.clone();
    return takes_whole(matcher, text);
  };
  EXPECT_TRUE(takes(R"({"name":"Ann","age":41})"));
  EXPECT_TRUE(takes("{ \"name\" : \"\xC3\xA9\\n\",\n \"age\": 0 }"));
  EXPECT_FALSE(takes(R"({"name":"Ann"})")) << "a required property is missing";
  EXPECT_FALSE(takes(R"({"name":"Ann","age":-1})"));
  EXPECT_FALSE(takes(R"({"name":"Ann","age":1.5})"));
  EXPECT_FALSE(takes(R"({"name":"Ann","age":1,"x":2})"));
  EXPECT_FALSE(takes(R"({"name":"Ann","age":1} )"
                     "x"));
}

TEST_F(GrammarMatcherTest, AllowsTheEndOnlyWhenTheAnswerIsComplete) {
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

TEST_F(GrammarMatcherTest, IsOverWhenOnlyTheEndIsPossible) {
  GrammarMatcher matcher = make("yes|no", Kind::regex);
  EXPECT_EQ(taken(matcher, "yes"), "yes");
  EXPECT_TRUE(matcher.is_over());
  EXPECT_TRUE(allows(matcher, end_));
  EXPECT_FALSE(allows(matcher, 's'));
}

TEST_F(GrammarMatcherTest, ClonesAreIndependentAndTokensCanBeRolledBack) {
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

TEST_F(GrammarMatcherTest, CountsValidDraftsWithoutAdvancing) {
  GrammarMatcher matcher = make("hello(x|y)z", Kind::regex);
  const std::vector<TokenId> drafts = {'h', 'e', 'l', 'l', 'o', 'x', 'y', 'z'};
  EXPECT_EQ(matcher.count_valid(drafts), 6U);
  EXPECT_EQ(matcher.count_valid(drafts), 6U);
  EXPECT_EQ(matcher.count_valid(std::span(drafts).subspan(1)), 0U);
}

TEST_F(GrammarMatcherTest, ALarkGrammarNamesControlTokensAndTreatsUserDefinedTokensAsText) {
  GrammarMatcher matcher = make("start: <|end|> \"<tool>\"", Kind::lark);
  EXPECT_FALSE(allows(matcher, '<'));
  EXPECT_TRUE(matcher.accept(end_));
  EXPECT_TRUE(allows(matcher, tool_));
  EXPECT_TRUE(matcher.accept(tool_));
  EXPECT_TRUE(matcher.is_over());
}

TEST_F(GrammarMatcherTest, RefusesUnsupportedSchemasAndReportsTheKeyword) {
  EXPECT_NE(error_of(R"({"type":"object","not":{"required":["a"]}})").message.find("not"), std::string::npos);
  EXPECT_NE(error_of(R"({"type":"array","uniqueItems":true})").message.find("uniqueItems"), std::string::npos);
  EXPECT_NE(error_of(R"({"type":"array","uniqueItems":true,"x-guidance":{"lenient":true}})").message.find("uniqueItems"), std::string::npos)
      << "a client cannot choose what is enforced";
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

TEST_F(GrammarMatcherTest, AcceptsCountsWithADecimalPoint) {
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
  EXPECT_TRUE(num_taken == 50 || !large.error().empty()) << "a limit reports an error";
  GrammarMatcher endless = make("start: a\na: b b b b b b b b b b\nb: a", Kind::lark);
  EXPECT_FALSE(endless.fill(words)) << "the grammar cannot start";
  EXPECT_NE(endless.error(), "");
  const GrammarMatcher recursive = make(R"({"$ref":"#/$defs/a","$defs":{"a":{"type":"array","items":{"$ref":"#/$defs/a"}}}})");
  GrammarMatcher matcher = recursive.clone();
  EXPECT_TRUE(takes_whole(matcher, "[[],[[[]]]]"));
}

TEST_F(GrammarMatcherTest, AcceptsEveryEscapeOfAString) {
  for (const auto& [schema, is_constant] : {std::pair(R"({"type":"string"})", false),
                                            {R"({"type":"string","maxLength":9})", false},
                                            {R"({"type":"string","pattern":"^[^,]*$"})", false},
                                            {R"({"type":"string","enum":["x","a/\u00e9\t\ud83d\ude00"]})", true},
                                            {R"({"const":"a/\u00e9\t\ud83d\ude00"})", true}}) {
    const GrammarMatcher fresh = make(schema);
    for (const char* text : {"\"a/\u00e9\\t\U0001F600\"", R"("a\/\u00e9\t\ud83d\ude00")", R"("a\u002F\u00E9\u0009\uD83D\uDE00")"}) {
      GrammarMatcher matcher = fresh.clone();
      EXPECT_TRUE(takes_whole(matcher, text)) << schema << " " << text;
    }
    // Letters of a constant may not be escaped: no writer escapes them.
    GrammarMatcher letter = fresh.clone();
    EXPECT_EQ(takes_whole(letter, R"("\u0061/\u00e9\t\ud83d\ude00")"), !is_constant) << schema;
    for (const char* text : {R"("\ud83d")", R"("\ude00")", R"("\x61")", "\"\n\""}) {
      GrammarMatcher matcher = fresh.clone();
      EXPECT_FALSE(takes_whole(matcher, text)) << schema << " " << text;
    }
  }
}

TEST_F(GrammarMatcherTest, CountsAnEscapedCharacterAsOne) {
  const GrammarMatcher fresh = make(R"({"type":"string","minLength":2,"maxLength":3})");
  for (const auto& [text, is_taken] : {std::pair(R"("\ud83d\ude00\u0041")", true),
                                       {R"("\ud83d\ude00")", false},
                                       {R"("\/\n\u00e9")", true},
                                       {R"("\u0041\u0042\u0043\u0044")", false}}) {
    GrammarMatcher matcher = fresh.clone();
    EXPECT_EQ(takes_whole(matcher, text), is_taken) << text;
  }
}

TEST_F(GrammarMatcherTest, AcceptsPropertiesInAnyOrderAndEachOnce) {
  const GrammarMatcher fresh = make(kPerson);
  for (const auto& [text, is_taken] : {std::pair(R"({"age":41,"name":"Ann"})", true),
                                       {R"({"age":41})", false},
                                       {R"({"age":41,"age":42,"name":"Ann"})", false},
                                       {R"({"age":41,"\u0061ge":42,"name":"Ann"})", false}}) {
    GrammarMatcher matcher = fresh.clone();
    EXPECT_EQ(takes_whole(matcher, text), is_taken) << text;
  }
}

// After this comma no token would be allowed.
TEST_F(GrammarMatcherTest, RefusesACommaAfterTheLastPossibleProperty) {
  constexpr const char* kAtMostOne = R"({"type":"object","properties":{"a":{},"b":{}},"maxProperties":1,"additionalProperties":false})";
  for (const auto& [schema, whole] : {std::pair(kPerson, R"({"age":41,"name":"Ann")"), {kAtMostOne, R"({"b":true)"}}) {
    GrammarMatcher matcher = make(schema);
    EXPECT_EQ(taken(matcher, whole), whole);
    EXPECT_FALSE(allows(matcher, ','));
    EXPECT_TRUE(allows(matcher, '}'));
  }
}

TEST_F(GrammarMatcherTest, AcceptsNumbersInEachFormWithinTheirBounds) {
  struct Numbers {
    const char* schema;
    std::vector<const char*> taken, refused;
  };
  const std::vector<Numbers> cases{
      {R"({"type":"integer"})",
       {"1.0", "1e3", "-0", "12E+2", "123456789012345678901234567890", "0e0", "5e-0"},
       {"1.5", "01", "1e-1", "+1", ".0"}},
      {R"({"type":"number","minimum":0,"maximum":1})",
       {"1e-05", "0.25", "1", "1.000", "2.5E-3", "0e9", "-0.0", "100e-2", "0.5e-3", "1e0"},
       {"1.01", "1e1", "-1e-9", "2", "101e-2"}},
      {R"({"type":"number","exclusiveMinimum":0})", {"1e-300", "0.0001", "7", "3e5"}, {"0", "0.0", "-1", "0e5"}},
      {R"({"type":"number","minimum":-2.5,"maximum":1.75})",
       {"-2.5", "-25e-1", "1.75", "17.5e-1", "1.749", "0"},
       {"-2.51", "1.76", "1.75001", "-3", "2"}},
      {R"({"type":"integer","minimum":10,"exclusiveMaximum":2000})", {"10", "1e1", "1999", "19e2"}, {"9", "2000", "2e3", "1e0"}},
      {R"({"const":1500})", {"1500", "1.5e3", "1500.00", "15E+2", "150000e-2"}, {"1501", "15e3"}},
      {R"({"enum":[0.05,-3]})", {"0.05", "5e-2", "0.050", "-3", "-3.0", "-30e-1"}, {"0.5", "3"}}};
  for (const auto& [schema, taken, refused] : cases) {
    const GrammarMatcher fresh = make(schema);
    const auto takes = [&](const char* text) {
      GrammarMatcher matcher = fresh.clone();
      return takes_whole(matcher, text);
    };
    for (const char* text : taken) EXPECT_TRUE(takes(text)) << schema << " " << text;
    for (const char* text : refused) EXPECT_FALSE(takes(text)) << schema << " " << text;
  }
}

TEST_F(GrammarMatcherTest, BoundsWhiteSpaceButAllowsPrettyPrinting) {
  const GrammarMatcher fresh = make(kPerson);
  const auto takes = [&](const std::string& space) {
    GrammarMatcher matcher = fresh.clone();
    return takes_whole(matcher,
                       "{" + space + "\"name\"" + space + ":" + space + "\"Ann\"" + space + "," + space + "\"age\": 1" + space + "}");
  };
  EXPECT_TRUE(takes("\n" + std::string(128, ' ')));
  EXPECT_TRUE(takes("\r\n" + std::string(64, ' ')));
  EXPECT_TRUE(takes("\n" + std::string(16, '\t')));
  EXPECT_TRUE(takes(" \n\n "));
  EXPECT_FALSE(takes(std::string(200, '\n')));
  EXPECT_FALSE(takes(std::string(400, ' ')));
}

TEST_F(GrammarMatcherTest, EnforcesAPatternForAnySpellingOfItsCharacters) {
  const GrammarMatcher fresh = make(R"({"type":"string","pattern":"^caf\u00e9-[A-C]{2}\\d+(/x)?$"})");
  for (const auto& [text, is_taken] : {std::pair("\"caf\u00e9-AB1\"", true),
                                       {R"("caf\u00E9-\u0041B12\/x")", true},
                                       {R"("caf\u00e8-AB1")", false},
                                       {R"("caf\u00e9-A\u00441")", false},
                                       {R"("xcaf\u00e9-AB1")", false}}) {
    GrammarMatcher matcher = fresh.clone();
    EXPECT_EQ(takes_whole(matcher, text), is_taken) << text;
  }
}

TEST_F(GrammarMatcherTest, EnforcesFormats) {
  struct Format {
    const char* name;
    std::vector<std::string> taken, refused;
  };
  const std::vector<Format> cases{
      {"date", {"2024-02-29", "1999-12-31"}, {"2023-02-29", "2024-13-01", "24-01-01"}},
      {"date-time", {"2024-02-29T23:59:60Z", "2020-01-01t00:00:00.5+01:00"}, {"2024-01-01", "2024-01-01T25:00:00Z"}},
      {"email", {"a.b+c@example.org"}, {"a@", "@b", "a b@c"}},
      {"ipv4", {"255.0.10.199"}, {"256.0.0.1", "1.2.3"}},
      {"ipv6",
       {"::", "::1", "2001:db8::8:800:200c:417a", "1:2:3:4:5:6:7:8", "::ffff:1.2.3.4", "1::", "1:2:3:4:5:6:7::"},
       {"1:2", ":::", "12345::", "1:2:3:4:5:6:7:8:9"}},
      {"uuid", {"123e4567-e89b-12d3-a456-426614174000"}, {"123e4567"}},
      {"uri", {"https://a.example:80/b%20c?d=e#f", "urn:isbn:1", "http://[::1]/", "file:///x"}, {"no scheme", "http://a b"}},
      {"duration", {"P1DT2H", "P3W", "PT5M"}, {"P", "1D", "P1DT"}},
      {"hostname", {"a-b.example"}, {"-a", "a..b"}},
      {"time", {"12:30:00Z"}, {"24:00:00Z", "12:30"}}};
  for (const auto& [name, taken, refused] : cases) {
    const GrammarMatcher fresh = make(fmt::format(R"({{"type":"string","format":"{}"}})", name));
    const auto takes = [&](const std::string& text) {
      GrammarMatcher matcher = fresh.clone();
      return takes_whole(matcher, "\"" + text + "\"");
    };
    for (const std::string& text : taken) EXPECT_TRUE(takes(text)) << name << " " << text;
    for (const std::string& text : refused) EXPECT_FALSE(takes(text)) << name << " " << text;
  }
}

TEST_F(GrammarMatcherTest, JoinsSchemasThatApplyTogether) {
  struct Joined {
    const char* schema;
    std::vector<const char*> taken, refused;
  };
  const std::vector<Joined> cases{
      {R"({"allOf":[{"$ref":"#/$defs/a"},{"properties":{"y":{"type":"string"}},"required":["y"]}],"type":"object",
           "$defs":{"a":{"type":"object","properties":{"x":{"type":"integer"}},"required":["x"]}}})",
       {R"({"y":"\/","x":1})"},
       {R"({"x":1})", R"({"y":"a"})", R"({"x":"1","y":"a"})"}},
      {R"({"type":"object","properties":{"a":{},"b":{}},"additionalProperties":false,"anyOf":[{"required":["a"]},{"required":["b"]}]})",
       {R"({"b":1})", R"({"a":1,"b":2})"},
       {"{}", R"({"c":1})"}},
      {R"({"oneOf":[{"type":"object","properties":{"k":{"const":"s"},"v":{"type":"string"}},"required":["k","v"]},
                    {"type":"object","properties":{"k":{"const":"n"},"v":{"type":"number"}},"required":["k","v"]}]})",
       {R"({"v":1,"k":"n"})", R"({"k":"s","v":"x"})"},
       {R"({"k":"n","v":"x"})"}},
      {R"({"type":["string","boolean"],"maxLength":1})", {"true", R"("\u00e9")"}, {R"("ab")", "1"}},
      {R"({"type":"object","properties":{"next":{"$ref":"#"}},"additionalProperties":false})",
       {R"({"next":{"next":{}}})"},
       {R"({"next":1})"}},
      {R"({"type":"object","minProperties":1,"maxProperties":1,"properties":{"a":{},"b":{}},"additionalProperties":false})",
       {R"({"b":1})"},
       {"{}", R"({"a":1,"b":1})"}},
      {R"({"type":"array","prefixItems":[{"type":"string"}],"items":{"type":"integer"},"minItems":2,"maxItems":3})",
       {R"(["a",1])", R"([ "a" , 1 , 2 ])"},
       {R"(["a"])", R"(["a",1,2,3])", R"([1,1])"}}};
  for (const auto& [schema, taken, refused] : cases) {
    const GrammarMatcher fresh = make(schema);
    const auto takes = [&](const char* text) {
      GrammarMatcher matcher = fresh.clone();
      return takes_whole(matcher, text);
    };
    for (const char* text : taken) EXPECT_TRUE(takes(text)) << schema << " " << text;
    for (const char* text : refused) EXPECT_FALSE(takes(text)) << schema << " " << text;
  }
}

TEST_F(GrammarMatcherTest, ReportsThePathOfAnUnsupportedSubschema) {
  for (const auto& [schema, message] :
       {std::pair(R"({"properties":{"a":{"type":"array","items":{"$ref":"#/$defs/q"}}}})", "#/properties/a/items: '$ref' is '#/$defs/q'"),
        {R"x({"type":"object","properties":{"a":{"type":"string","pattern":"^(?!x)"}}})x",
         "#/properties/a: 'pattern' uses lookahead or lookbehind"},
        {R"({"type":"string","pattern":"a("})", "#: 'pattern' has an unmatched ("},
        {R"({"oneOf":[{"type":"object"},{"type":"object"}]})", "#: 'oneOf' has alternatives that can both match (0 and 1)"},
        {R"({"type":"string","enum":[1,2]})", "#: no value of 'const' or 'enum' matches 'type'"},
        {R"({"type":"float"})", "#: 'type' is \"float\""},
        {R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/a"}}})", "refers to itself"}})
    EXPECT_NE(error_of(schema).message.find(message), std::string::npos) << error_of(schema).message;
  EXPECT_NE(error_of("a(", Kind::regex).message.find("unclosed group"), std::string::npos) << error_of("a(", Kind::regex).message;
}

TEST_F(GrammarMatcherTest, EnforcesSchemasWithinAGrammar) {
  const GrammarMatcher fresh =
      make("start: \"%json {\" /[\\/\"]*/ x // %json {\"type\":\"null\"}\nx: y \"!\"\ny: %json {\"type\":\"object\"}\nz: %json {}\n",
           Kind::lark);
  for (const auto& [text, is_taken] : {std::pair(R"(%json {/"{"\u0061":"\/"}!)", true), {"%json {null!", false}}) {
    GrammarMatcher matcher = fresh.clone();
    EXPECT_EQ(takes_whole(matcher, text), is_taken) << text;
  }
}

}  // namespace
}  // namespace quire
