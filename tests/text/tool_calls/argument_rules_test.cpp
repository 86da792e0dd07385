#include "text/tool_calls/argument_rules.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "text/tool_calls/answer_samples.h"
#include "text/tool_calls/call_grammar.h"
#include "text/tool_calls/rule_lines.h"

namespace quire {
namespace {

Tool tool_with(std::string_view properties, std::string_view required = "[]") {
  return {.name = "f",
          .parameters = boost::json::parse(fmt::format(R"({{"type": "object", "properties": {}, "required": {}}})", properties, required))};
}

std::string python_rules(const Tool& tool, bool is_canonical = false) {
  std::string rules;
  python_arguments(rules, 7, tool, is_canonical);
  return rules;
}

struct ArgumentRule {
  std::string_view schema, rule;
};

TEST(ArgumentRules, PythonValuesHaveTheWordsOfTheirType) {
  for (const ArgumentRule& one : {ArgumentRule{R"({"type": "boolean"})", R"(("True" | "False"))"},
                                  {R"({"type": "null"})", R"("None")"},
                                  {R"({"type": "integer"})", "(value_arg_7_0)"},
                                  {R"({"type": ["boolean", "null"]})", R"((value_arg_7_0 | "True" | "False" | "None"))"},
                                  {R"({"type": ["integer", "null"], "description": "d"})", R"((value_arg_7_0 | "None"))"},
                                  {R"({"anyOf": [{"type": "boolean"}, {"type": "integer"}]})", R"((value_arg_7_0 | "True" | "False"))"},
                                  {R"({"anyOf": [{"type": "integer"}]})", "(value_arg_7_0)"},
                                  {R"({"type": "boolean", "enum": [true]})", "(value_arg_7_0)"},
                                  {R"({"type": "null", "const": null})", "(value_arg_7_0)"},
                                  {R"({"type": "string", "maxLength": 3})", "(value_arg_7_0)"},
                                  {R"({"enum": ["a"]})", "(value_arg_7_0)"},
                                  {"{}", "(value_arg_7_0)"},
                                  {"true", "(value_arg_7_0)"}})
    EXPECT_TRUE(has_rule(python_rules(tool_with(fmt::format(R"({{"a": {}}})", one.schema))), "arg_7_0: \"a=\" " + std::string(one.rule)))
        << one.schema << "\n"
        << python_rules(tool_with(fmt::format(R"({{"a": {}}})", one.schema)));
  const std::string text = python_rules(tool_with(R"({"a": {"type": "string", "title": "T", "default": "x"}})"));
  EXPECT_NE(text.find("arg_7_0: \"a=\" (value_arg_7_0 | /'"), std::string::npos) << text;
  EXPECT_TRUE(has_rule(python_rules(tool_with(R"({"a": {"type": "string"}})"), true), "arg_7_0: \"a=\" value_arg_7_0"));
  EXPECT_TRUE(has_rule(python_rules(tool_with(R"({"a": {"type": "boolean"}})"), true), R"(arg_7_0: "a=" ("True" | "False"))"));
}

TEST(ArgumentRules, RequiredPythonArgumentsComeFirst) {
  const std::string three = R"({"a": {"type": "null"}, "b": {"type": "null"}, "c": {"type": "null"}})";
  const std::string two = R"({"a": {"type": "null"}, "b": {"type": "null"}})";
  EXPECT_EQ(all_rules(python_rules(tool_with(three, R"(["c", "b"])"))), R"(arg_7_0: "b=" "None"
arg_7_1: "c=" "None"
arg_7_2: "a=" "None"
args_7: arg_7_0 ", " arg_7_1 (", " arg_7_2)?
)");
  EXPECT_EQ(all_rules(python_rules(tool_with(two))), R"(arg_7_0: "a=" "None"
arg_7_1: "b=" "None"
more_7_0: (", " arg_7_0)? more_7_1
more_7_1: (", " arg_7_1)? more_7_2
more_7_2: ""
args_7: (arg_7_0 more_7_1 | arg_7_1 more_7_2)?
)");
  EXPECT_EQ(all_rules(python_rules({.name = "f"})), "args_7: \"\"\n");
  EXPECT_EQ(all_rules(python_rules(tool_with("{}"))), "args_7: \"\"\n");
  std::string full(kMaxRuleBytes + 1, 'x'), almost(kMaxRuleBytes, 'x');
  python_arguments(full, 7, tool_with(two), false);
  EXPECT_EQ(full.size(), kMaxRuleBytes + 1) << "no rule is added beyond the limit";
  python_arguments(almost, 7, tool_with(two), false);
  EXPECT_GT(almost.size(), kMaxRuleBytes);
}

TEST(ArgumentRules, ValuesContainTheDefinitionsOfTheTool) {
  Tool tool = tool_with(R"({"a": {"$ref": "#/$defs/x"}, "b": {"type": "integer", "$defs": {}}, "c": true})");
  tool.parameters.as_object()["$defs"] = boost::json::parse(R"({"x": {"type": "integer"}})");
  tool.parameters.as_object()["definitions"] = boost::json::parse(R"({"y": {"type": "null"}})");
  std::istringstream in(python_rules(tool));
  std::map<std::string, boost::json::value> schemas;
  for (std::string line; std::getline(in, line);)
    if (const std::size_t at = line.find(": %json "); at != std::string::npos)
      schemas[line.substr(0, at)] = boost::json::parse(line.substr(at + 8));
  ASSERT_EQ(schemas.size(), 3U);
  const boost::json::value lenient = boost::json::parse(R"({"lenient": true})");
  for (const char* name : {"value_arg_7_0", "value_arg_7_1", "value_arg_7_2"}) {
    EXPECT_EQ(schemas[name].at("definitions").at("y").at("type"), "null") << name;
    EXPECT_EQ(schemas[name].at("x-guidance"), lenient) << name;
  }
  EXPECT_EQ(schemas["value_arg_7_0"].at("$defs").at("x").at("type"), "integer");
  EXPECT_EQ(schemas["value_arg_7_1"].at("$defs"), boost::json::object()) << "the property has definitions itself";
  tool.strict = true;
  EXPECT_EQ(python_rules(tool).find("lenient"), std::string::npos);
}

TEST(ArgumentRules, TaggedValuesEndWithTheirTag) {
  const ArgumentTags text_tags{.head = [](std::string_view key) { return fmt::format("\"<{}>\"", key); },
                               .any_head = "/<[a-z]+>/",
                               .end = "\"</>\"",
                               .separator = "\";\"",
                               .end_text = "</>"};
  const ArgumentTags token_tags{.head = text_tags.head, .any_head = text_tags.any_head, .end = "<[9]>", .separator = {}, .end_text = {}};
  const auto made = [](const ArgumentTags& tags, std::string_view schema, bool is_canonical) {
    std::string rules;
    tagged_arguments(rules, tags, 7, tool_with(fmt::format(R"({{"a": {}}})", schema)), is_canonical);
    return rules;
  };
  for (const ArgumentRule& one : {ArgumentRule{R"({"type": "boolean"})", R"(value_arg_7_0: ("true" | "false" | "True" | "False") "</>")"},
                                  {R"({"type": "null"})", R"(value_arg_7_0: ("null" | "None") "</>")"},
                                  {R"({"type": "string"})", R"(value_arg_7_0[lazy]: TEXT "</>")"},
                                  {R"({"type": ["integer", "string"]})", R"(value_arg_7_0[lazy]: TEXT "</>")"},
                                  {"true", R"(value_arg_7_0[lazy]: TEXT "</>")"},
                                  {R"({"enum": []})", R"(value_arg_7_0[lazy]: TEXT "</>")"},
                                  {R"({"enum": ["a", 1]})", R"(value_arg_7_0[lazy]: TEXT "</>")"},
                                  {R"({"enum": ["a", "b\""]})", R"(value_arg_7_0: "a</>" | "b\"</>")"},
                                  {R"({"const": "a", "enum": ["a", "b"]})", R"(value_arg_7_0: "a</>")"},
                                  {R"({"const": 1})", R"(value_arg_7_0: json_arg_7_0 "</>")"},
                                  {R"({"enum": [1, 2]})", R"(value_arg_7_0: json_arg_7_0 "</>")"},
                                  {R"({"type": "boolean", "enum": [true]})", R"(value_arg_7_0: json_arg_7_0 "</>")"},
                                  {R"({"type": ["boolean"]})", R"(value_arg_7_0: json_arg_7_0 "</>")"},
                                  {R"({"type": "integer"})", R"(value_arg_7_0: json_arg_7_0 "</>")"}})
    EXPECT_TRUE(has_rule(made(text_tags, one.schema, false), std::string(one.rule))) << one.schema << "\n"
                                                                                     << made(text_tags, one.schema, false);
  EXPECT_TRUE(has_rule(made(text_tags, R"({"type": "boolean"})", true), R"(value_arg_7_0: json_arg_7_0 "</>")")) << "JSON's words only";
  EXPECT_TRUE(has_rule(made(token_tags, R"({"type": "string"})", false), "value_arg_7_0: TEXT <[9]>"));
  EXPECT_TRUE(has_rule(made(token_tags, R"({"enum": ["a", "b"]})", false), R"(value_arg_7_0: "a" <[9]> | "b" <[9]>)"));
  EXPECT_TRUE(has_rule(made(text_tags, R"({"type": "null"})", false), R"(arg_7_0: "<a>" value_arg_7_0 ";")"));
  EXPECT_TRUE(has_rule(made(text_tags, R"({"type": "null"})", false), "args_7: arg_7_0?"));
  std::string rules;
  tagged_arguments(rules, text_tags, 7, tool_with(R"({"a": {}, "b": {}})", R"(["b"])"), false);
  EXPECT_TRUE(has_rule(rules, "args_7: arg_7_0 arg_7_1?")) << rules;
  EXPECT_TRUE(has_rule(rules, R"(arg_7_0: "<b>" value_arg_7_0 ";")")) << rules;
  std::string full(kMaxRuleBytes + 1, 'x');
  tagged_arguments(full, text_tags, 7, tool_with(R"({"a": {}})"), false);
  EXPECT_EQ(full.size(), kMaxRuleBytes + 1);
}

TEST(ArgumentRules, AnyArgumentsHaveAnyNameAndValue) {
  std::string loose, canonical, tagged;
  any_python_arguments(loose, false);
  EXPECT_NE(loose.find("\nany_arg: /[a-zA-Z_][a-zA-Z0-9_]*=/ (any_value | /'"), std::string::npos) << loose;
  EXPECT_NE(loose.find(" | \"True\" | \"False\" | \"None\")\n"), std::string::npos) << loose;
  any_python_arguments(canonical, true);
  EXPECT_EQ(all_rules(canonical),
            "any_value: %json\nany_arg: /[a-zA-Z_][a-zA-Z0-9_]*=/ (any_value)\nany_args: (any_arg (\", \" any_arg)*)?\n");
  any_tagged_arguments(tagged, {.head = {}, .any_head = "/<[a-z]+>/", .end = "\"</>\"", .separator = "\";\"", .end_text = "</>"});
  EXPECT_EQ(all_rules(tagged), "any_value[lazy]: TEXT \"</>\"\nany_args: (/<[a-z]+>/ any_value \";\")*\n");
}

TEST(ArgumentRules, LargeSchemasRestrictOnlyTheName) {
  const auto tool_of = [](std::size_t num_fields) {
    boost::json::object fields;
    for (std::size_t i = 0; i < num_fields; ++i) fields[fmt::format("k{}", i)] = boost::json::object{{"type", "null"}};
    return Tool{.name = "f", .parameters = {{"type", "object"}, {"properties", fields}}};
  };
  EXPECT_EQ(num_properties(tool_of(500)), 500U);
  EXPECT_EQ(num_properties({.name = "f"}), 0U);
  EXPECT_EQ(num_properties({.name = "f", .parameters = boost::json::parse(R"({"properties": [1, 2]})")}), 0U);
  const auto is_loose = [](const std::vector<Tool>& tools) {
    return call_grammar(hermes(), tools, {.is_required = true}).find("\nargs_0: ") == std::string::npos;
  };
  EXPECT_FALSE(is_loose({tool_of(500)}));
  EXPECT_TRUE(is_loose({tool_of(501)}));
  // The schemas of all tools together may have 128 KiB. `{"description":""}` has 18 bytes.
  const auto long_tool = [](std::size_t size) { return Tool{.name = "f", .parameters = {{"description", std::string(size - 18, 'x')}}}; };
  EXPECT_FALSE(is_loose({long_tool(131'072)}));
  EXPECT_TRUE(is_loose({long_tool(131'073)}));
  EXPECT_FALSE(is_loose({long_tool(65'536), long_tool(65'536)}));
  EXPECT_TRUE(is_loose({long_tool(65'536), long_tool(65'537)}));
}

}  // namespace
}  // namespace quire
