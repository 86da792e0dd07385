#include "text/tool_calls/call_grammar.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <string>

namespace quire {
namespace {

const std::vector<Tool>& tools_of_grammar() {
  static const std::vector<Tool> tools{{.name = "f",
                                        .parameters = boost::json::parse(
                                            R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
                                                "required": ["b"], "x-guidance": {"lenient": true}})"),
                                        .strict = true},
                                       {.name = "g", .parameters = nullptr, .strict = false}};
  return tools;
}

std::string grammar(const char* chat_template, CallGrammarOptions options) {
  return call_grammar(detect_call_format(chat_template), tools_of_grammar(), options);
}

bool has_line(const std::string& text, const std::string& line) {
  return text.find("\n" + line + "\n") != std::string::npos;
}

constexpr const char* kHermesTemplate = "tools <tool_call> \"arguments\"";

TEST(CallGrammar, RequiredCallsBeginImmediately) {
  const std::string text = grammar(kHermesTemplate, {.is_required = true});
  EXPECT_TRUE(has_line(text, "start: (section (\"\\n\" section)*)")) << text;
  EXPECT_TRUE(has_line(text, R"(section: "<tool_call>" "\n" call "\n" "</tool_call>")")) << text;
  EXPECT_TRUE(has_line(text, "call: call_0 | call_1")) << text;
  EXPECT_TRUE(has_line(text, R"(call_0: "{\"name\": \"f\"" named_0)")) << text;
  EXPECT_TRUE(has_line(text, R"(named_0: ", \"arguments\": " args_0 "}")")) << text;
}

TEST(CallGrammar, AllowsOneCallWithoutParallelCalls) {
  EXPECT_TRUE(has_line(grammar(kHermesTemplate, {.is_required = true, .parallel = false}), "start: (section)"));
  EXPECT_TRUE(has_line(grammar("<|tool_call|>", {.is_required = true, .parallel = false}), R"(section: "<|tool_call|>" "[" call "]")"));
  EXPECT_TRUE(has_line(grammar("<|tool_call|>", {.is_required = true}), R"(section: "<|tool_call|>" "[" call (", " call)* "]")"));
}

TEST(CallGrammar, AutomaticCallsAreConstrainedOnceTheyAreUnambiguous) {
  const std::string text = grammar(kHermesTemplate, {});
  EXPECT_TRUE(has_line(text, R"(opened[lazy]: TEXT "<tool_call>")")) << text;
  EXPECT_TRUE(has_line(text, "free: TEXT | opened after")) << text;
  EXPECT_TRUE(has_line(text, "after: begun free | OTHER | other_opened after")) << text;
  EXPECT_TRUE(has_line(text, R"re(OTHER: /(.|\n)*/ & ~/([ \n]{0,4}\{[ \n]{0,4}"name" ?: ?"[A-Za-z0-9_])(.|\n)*/)re")) << text;
  EXPECT_TRUE(has_line(text, "start: free"));
  EXPECT_TRUE(has_line(grammar(kHermesTemplate, {.is_after_delimiter = true}), "start: after"));
  EXPECT_TRUE(has_line(grammar("x", {}), "start: TEXT | (first_0 | first_1) "));
  EXPECT_TRUE(has_line(grammar("x", {}), R"(opened_1[lazy]: "{\"name\": \"g\"")"));
}

TEST(CallGrammar, WritesControlTokensByTheirIds) {
  const auto token = [](std::string_view mark) { return mark == "[TOOL_CALLS]" ? std::optional<TokenId>(5) : std::nullopt; };
  const std::string text = grammar("[TOOL_CALLS]", {.token = token});
  EXPECT_TRUE(has_line(text, "free: TEXT | TEXT <[5]> after")) << text;
  EXPECT_TRUE(has_line(grammar("[TOOL_CALLS]", {.is_required = true, .token = token}), R"(section: <[5]> " "? "[" call (", " call)* "]")"));
}

TEST(CallGrammar, ReasoningComesFirst) {
  const std::string text = grammar("<think></think> <tool_call> \"arguments\"", {.is_required = true});
  EXPECT_TRUE(has_line(text, R"(thought[lazy]: "<think>" TEXT "</think>")")) << text;
  EXPECT_TRUE(has_line(text, "start: (thought space)? (section (\"\\n\" section)*)")) << text;
  const std::string within = grammar("<think></think> <tool_call> \"arguments\"", {.is_required = true, .in_reasoning = true});
  EXPECT_TRUE(has_line(within, R"(thought[lazy]: TEXT "</think>")")) << within;
}

TEST(CallGrammar, PythonAndXmlHaveOneRulePerArgument) {
  const std::string python = grammar("<|tool_call_start|>", {.is_required = true});
  EXPECT_TRUE(has_line(python, R"(args_0: arg_0_0 (", " arg_0_1)?)")) << python;
  EXPECT_NE(python.find("arg_0_0: \"b=\" (value_arg_0_0 | /'"), std::string::npos) << "required arguments come first";
  const std::string xml = grammar("<tool_call> <parameter=", {.is_required = true});
  EXPECT_TRUE(has_line(xml, "args_0: arg_0_0 arg_0_1?")) << xml;
  EXPECT_TRUE(has_line(xml, R"(value_arg_0_0[lazy]: TEXT "\n</parameter>\n")")) << xml;
  const std::string glm = grammar("<tool_call> <arg_key>", {.is_required = true});
  EXPECT_TRUE(has_line(glm, R"(value_arg_0_0[lazy]: TEXT "</arg_value>")")) << glm;
  EXPECT_TRUE(has_line(glm, R"(arg_0_0: "<arg_key>" "b" "</arg_key>" /\n?/ "<arg_value>" value_arg_0_0 /\n?/)")) << glm;
}

TEST(CallGrammar, ConstrainsHarmonyMessagesIncludingTheirHeaders) {
  const std::string required = grammar("<|channel|><|message|>", {.is_required = true});
  EXPECT_TRUE(has_line(required, "start: note* calls")) << required;
  EXPECT_TRUE(has_line(required, R"(note: "<|channel|>" "analysis" noted "<|start|>" "assistant")")) << required;
  EXPECT_NE(required.find(R"("<|channel|>" "commentary to=functions.f" | " to=functions.f" "<|channel|>" "commentary")"),
            std::string::npos);
  const std::string free = grammar("<|channel|><|message|>", {});
  EXPECT_TRUE(has_line(free, "start: note* (said | calls)")) << free;
  EXPECT_TRUE(has_line(free, R"(note: "<|channel|>" ("analysis" | "commentary") noted "<|start|>" "assistant")")) << free;
  EXPECT_TRUE(has_line(grammar("<|channel|><|message|>", {.in_reasoning = true}),
                       R"(start: thought "<|start|>" "assistant" note* (said | calls))"));
  const std::string formed = form_grammar(detect_call_format("<|channel|><|message|>"), "/[0-9]+/", {});
  EXPECT_TRUE(has_line(formed, "start: note* said")) << formed;
  EXPECT_TRUE(has_line(formed, R"(said: "<|channel|>" "final" "<|message|>" form)")) << formed;
}

TEST(CallGrammar, DropsClientSettingsForTheGrammarLibrary) {
  const auto strict = boost::json::parse(schema_of_arguments(tools_of_grammar()[0]));
  EXPECT_FALSE(strict.at("x-guidance").as_object().contains("lenient"));
  EXPECT_EQ(strict.at("additionalProperties"), false);
  const auto none = boost::json::parse(schema_of_arguments(tools_of_grammar()[1]));
  EXPECT_EQ(none.at("type"), "object");
  EXPECT_EQ(none.at("x-guidance").at("lenient"), true);
}

TEST(CallGrammar, ToolWithoutParametersTakesNoArguments) {
  for (const char* schema :
       {"null", "{}", R"({"type":"object"})", R"({"type":["object","null"]})", R"({"properties":{},"description":"x"})"}) {
    const Tool tool{.name = "f", .parameters = boost::json::parse(schema)};
    const auto made = boost::json::parse(schema_of_arguments(tool));
    EXPECT_EQ(made.at("type"), "object") << schema;
    EXPECT_EQ(made.at("properties"), boost::json::object()) << schema;
    EXPECT_EQ(made.at("additionalProperties"), false) << schema;
  }
  for (const char* schema : {R"({"additionalProperties":true})", R"({"additionalProperties":{"type":"string"}})", R"({"required":["a"]})",
                             R"({"anyOf":[{}]})"}) {
    const Tool tool{.name = "f", .parameters = boost::json::parse(schema)};
    EXPECT_FALSE(boost::json::parse(schema_of_arguments(tool)).as_object().contains("properties")) << schema;
  }
}

TEST(CallGrammar, ToolWithAnyArgumentsConstrainsOnlyItsName) {
  const std::vector<Tool> tools{{.name = "f", .parameters = any_arguments()}};
  for (const char* chat_template : {kHermesTemplate, "<|tool_call_start|>", "<tool_call> <parameter=", "x"}) {
    const std::string text = call_grammar(detect_call_format(chat_template), tools, {});
    EXPECT_NE(text.find("\nany_args: "), std::string::npos) << text;
    EXPECT_EQ(text.find("args_0"), std::string::npos) << text;
  }
}

TEST(CallGrammar, CanonicalGrammarHasOneSpelling) {
  const std::vector<Tool> tools{
      {.name = "f",
       .parameters = boost::json::parse(R"({"type": "object", "properties": {"t": {"type": "string"}, "b": {"type": "boolean"}}})"),
       .strict = true}};
  const auto grammar_of = [&](const char* chat_template, bool is_canonical) {
    return call_grammar(detect_call_format(chat_template), tools, {.is_required = true, .is_canonical = is_canonical});
  };
  for (const bool one : {false, true}) {
    for (const char* chat_template : {kHermesTemplate, "[TOOL_CALLS]", "<|tool_call_start|>"})
      EXPECT_EQ(grammar_of(chat_template, one).find(R"("json_allowed_escapes":"nrbtf\\\"")") != std::string::npos, one) << chat_template;
    EXPECT_EQ(grammar_of("<|tool_call_start|>", one).find("/'") == std::string::npos, one) << "the canonical form has no single quotes";
    EXPECT_EQ(grammar_of("<tool_call> <parameter=", one).find("\"True\"") == std::string::npos, one)
        << "the canonical form has no Python booleans";
  }
}

TEST(CallGrammar, WritesOneRulePerToolForAThousandTools) {
  std::vector<Tool> tools;
  for (int i = 0; i < 1000; ++i) tools.push_back({.name = "tool_" + std::to_string(i), .parameters = nullptr, .strict = false});
  const std::string text = call_grammar(detect_call_format(kHermesTemplate), tools, {.is_required = true});
  EXPECT_NE(text.find("\nargs_999: "), std::string::npos);
  EXPECT_LT(text.size(), 400'000U);
}

TEST(CallGrammar, DropsUnsupportedKeywordsOfToolsThatAreNotStrict) {
  const auto loosened = [](const std::string& schema, bool strict = false) {
    const Tool tool{.name = "f", .parameters = boost::json::parse(schema), .strict = strict};
    boost::json::object made = boost::json::parse(schema_of_arguments(tool)).as_object();
    made.erase("x-guidance");
    return boost::json::serialize(made);
  };
  const std::string odd =
      R"odd({"type":"object","properties":{"pattern":{"pattern":"^(?!x)","type":"string"},"type":{"type":"float"},)odd"
      R"odd("a":{"anyOf":[{"$ref":"http://x"},{"pattern":"\\1","items":"x"}]},"b":3,"c":{"enum":["type"],"pattern":"a\\d"}},)odd"
      R"odd("required":"a","additionalProperties":false})odd";
  EXPECT_EQ(loosened(odd), R"odd({"type":"object","properties":{"pattern":{"type":"string"},"type":{},"a":{"anyOf":[{},{"items":{}}]},)odd"
                           R"odd("b":{},"c":{"enum":["type"],"pattern":"a\\d"}},"additionalProperties":false})odd");
  EXPECT_EQ(boost::json::parse(loosened(odd, true)), boost::json::parse(odd));
  EXPECT_EQ(loosened(R"({"type":"object","properties":{"a":{}},"required":["b"]})"),
            R"({"type":"object","properties":{"a":{}},"required":["b"]})")
      << "additionalProperties false would forbid all properties";
}

// llguidance cannot compile the schemas of a thousand tools.
TEST(CallGrammar, OnlyStrictToolsKeepTheirSchemasOverTheGrammarLimit) {
  boost::json::object fields;
  for (int i = 0; i < 501; ++i) fields["field_" + std::to_string(i)] = boost::json::object{{"type", "integer"}};
  const boost::json::value schema = boost::json::object{{"type", "object"}, {"properties", fields}};
  const std::vector<Tool> tools{{.name = "f", .parameters = schema, .strict = false},
                                {.name = "g", .parameters = tools_of_grammar()[0].parameters, .strict = true}};
  for (const char* chat_template : {kHermesTemplate, "<|tool_call_start|>", "<tool_call> <parameter=", "x"}) {
    const std::string text = call_grammar(detect_call_format(chat_template), tools, {});
    EXPECT_LT(text.size(), 4000U) << chat_template << text;
    EXPECT_NE(text.find("\nany_args: "), std::string::npos);
    EXPECT_NE(text.find("\nargs_1: "), std::string::npos);
    EXPECT_EQ(text.find("args_0"), std::string::npos);
  }
  const std::vector<Tool> long_ones(2, {.name = "f", .parameters = {{"description", std::string(70'000, 'x')}}, .strict = false});
  EXPECT_LT(call_grammar(detect_call_format(kHermesTemplate), long_ones, {}).size(), 2000U);
}

}  // namespace
}  // namespace quire
