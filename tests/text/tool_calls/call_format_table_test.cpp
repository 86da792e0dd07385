// Checks which format of calls each kind of template gets, and the schemas that grammars receive.
#include <gtest/gtest.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "text/tool_calls/call_format.h"
#include "text/tool_calls/call_grammar.h"
#include "text/tool_calls/loose_schema.h"

namespace quire {
namespace {

namespace json = boost::json;
using Texts = std::vector<std::string>;

struct Detected {
  std::string_view source;
  CallStyle style;
  std::string_view open, close;
  bool is_list = false;
};

TEST(CallFormatTable, EachSignatureHasItsStyleAndDelimiters) {
  constexpr std::string_view kDeepSeekBegin = "<｜tool▁calls▁begin｜>", kKimiBegin = "<|tool_calls_section_begin|>";
  for (const Detected& one : {Detected{"<|channel|> <|message|> [TOOL_CALLS]", CallStyle::harmony, "", ""},
                              {"<|channel|>", CallStyle::plain, "", ""},
                              {"<｜tool▁calls▁begin｜> ```json", CallStyle::deepseek, kDeepSeekBegin, ""},
                              {"<｜tool▁calls▁begin｜>", CallStyle::deepseek_v31, kDeepSeekBegin, ""},
                              {"<|tool_calls_section_begin|>", CallStyle::kimi, kKimiBegin, ""},
                              {"[TOOL_CALLS] [ARGS]", CallStyle::mistral_v11, "[TOOL_CALLS]", ""},
                              {"[TOOL_CALLS]", CallStyle::mistral, "[TOOL_CALLS]", ""},
                              {"<|tool_call|>", CallStyle::marked, "<|tool_call|>", "", true},
                              {"<TOOLCALL>", CallStyle::marked, "<TOOLCALL>", "</TOOLCALL>", true},
                              {"<tool_calls>[", CallStyle::marked, "<tool_calls>", "</tool_calls>", true},
                              {"<tool_calls>", CallStyle::plain, "", ""},
                              {"<|tool_call_start|>", CallStyle::pythonic, "<|tool_call_start|>", "<|tool_call_end|>"},
                              {"<|tool_list_start|>", CallStyle::pythonic, "<|tool_call_start|>", "<|tool_call_end|>"},
                              {"<seed:tool_call> <parameter=", CallStyle::xml, "<seed:tool_call>", "</seed:tool_call>"},
                              {"<tool_call> <arg_key> <parameter=", CallStyle::glm, "<tool_call>", "</tool_call>"},
                              {"<tool_call> <parameter= \"arguments\"", CallStyle::xml, "<tool_call>", "</tool_call>"},
                              {"<tool_call> \"arguments\"", CallStyle::marked, "<tool_call>", "</tool_call>"},
                              {"<tool_call> \\\"arguments\\\"", CallStyle::marked, "<tool_call>", "</tool_call>"},
                              {"<tool_call>", CallStyle::plain, "", ""},
                              {"named SmolLM, trained by Hugging Face ## Reasoning Mode", CallStyle::marked, "<tool_call>", "</tool_call>"},
                              {"named SmolLM, trained by Hugging Face", CallStyle::plain, "", ""},
                              {"[func_name1(params_name1=params_value1", CallStyle::pythonic, "", ""},
                              {"{\"name\": function name, \"parameters\": dictionary", CallStyle::llama, "<|python_tag|>", ""},
                              {"", CallStyle::plain, "", ""}}) {
    const CallFormat format = detect_call_format(one.source);
    EXPECT_EQ(format.style, one.style) << one.source;
    EXPECT_EQ(format.open, one.open) << one.source;
    EXPECT_EQ(format.close, one.close) << one.source;
    EXPECT_EQ(format.is_list, one.is_list) << one.source;
  }
}

TEST(CallFormatTable, ReasoningNeedsBothOfItsDelimiters) {
  for (const auto& [open, close] : {std::pair("<think>", "</think>"),
                                    {"[THINK]", "[/THINK]"},
                                    {"<seed:think>", "</seed:think>"},
                                    {"<|START_THINKING|>", "<|END_THINKING|>"}}) {
    const CallFormat format = detect_call_format(std::string(open) + close);
    EXPECT_EQ(format.think_open, open);
    EXPECT_EQ(format.think_close, close);
    EXPECT_EQ(detect_call_format(open).think_open, "");
    EXPECT_EQ(detect_call_format(close).think_close, "");
    for (const char* space : {"", " ", "\n", "\t", "\r", " \n\t\r"})
      EXPECT_TRUE(ends_in_reasoning(format, std::string("a") + open + space));
    EXPECT_FALSE(ends_in_reasoning(format, std::string(open) + "a"));
    EXPECT_FALSE(ends_in_reasoning(format, " \n"));
  }
  const CallFormat harmony = detect_call_format("<|channel|><|message|><think></think>");
  EXPECT_EQ(harmony.think_open, "<|channel|>analysis<|message|>");
  EXPECT_EQ(harmony.think_close, "<|end|>");
}

TEST(CallFormatTable, FlagsFollowWordsOfTheTemplate) {
  EXPECT_TRUE(detect_call_format("tools").shows_tools);
  EXPECT_FALSE(detect_call_format("tool").shows_tools);
  EXPECT_TRUE(detect_call_format("tool").shows_results);
  EXPECT_FALSE(detect_call_format("too").shows_results);
  EXPECT_TRUE(detect_call_format("tool_calls").shows_calls);
  EXPECT_FALSE(detect_call_format("tool_call").shows_calls);
  EXPECT_TRUE(detect_call_format("{% if id | length != 9 %}").wants_short_ids);
  EXPECT_FALSE(detect_call_format("length != 8").wants_short_ids);
  EXPECT_TRUE(detect_call_format("tool['function']['arguments'] + x").wants_text_arguments);
  EXPECT_FALSE(detect_call_format("tool['function']['arguments'] | tojson").wants_text_arguments);
  EXPECT_TRUE(detect_call_format("reasoning_effort").reads_effort);
  EXPECT_FALSE(detect_call_format("reasoning").reads_effort);
  EXPECT_FALSE(detect_call_format("<tool_call> <parameter=").is_tight);
  EXPECT_FALSE(detect_call_format("<tool_call> \"arguments\"").is_tight);
}

TEST(CallFormatTable, DelimitersAreAllTextsOfTheFormat) {
  EXPECT_EQ(detect_call_format("<tool_call> \"arguments\" <think></think>").delimiters(),
            (Texts{"<tool_call>", "</tool_call>", "<think>", "</think>"}));
  EXPECT_EQ(detect_call_format("<tool_call> <arg_key>").delimiters(),
            (Texts{"<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"}));
  EXPECT_EQ(detect_call_format("<|tool_calls_section_begin|>").delimiters(),
            (Texts{"<|tool_calls_section_begin|>", "<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>",
                   "<|tool_call_end|>", "<|tool_calls_section_end|>"}));
  EXPECT_EQ(detect_call_format("[TOOL_CALLS]").delimiters(), Texts{"[TOOL_CALLS]"});
  EXPECT_EQ(detect_call_format("<|channel|><|message|>").delimiters(),
            (Texts{"<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|call|>", "<|return|>"}));
  EXPECT_EQ(section_delimiters(CallStyle::deepseek).call, section_delimiters(CallStyle::deepseek_v31).call);
  for (const CallStyle style : {CallStyle::plain, CallStyle::marked, CallStyle::mistral, CallStyle::xml, CallStyle::harmony})
    EXPECT_TRUE(section_delimiters(style).begin.empty() && section_delimiters(style).end.empty());
}

// Schemas --------------------------------------------------------------------------------------------------------------------------------

struct SchemaChange {
  std::string_view given, made;
};

TEST(LooseSchema, DropsOnlyWhatTheGrammarLibraryRejects) {
  for (const SchemaChange& one :
       {SchemaChange{R"_({"pattern": "a(?=b)"})_", "{}"},
        {R"_({"pattern": "a(?!b)"})_", "{}"},
        {R"_({"pattern": "(?<=a)b"})_", "{}"},
        {R"_({"pattern": "(?<!a)b"})_", "{}"},
        {R"_({"pattern": "(a)\\1"})_", "{}"},
        {R"_({"pattern": "\\9"})_", "{}"},
        {R"_({"pattern": 3})_", "{}"},
        {R"_({"pattern": "\\0\\d(?:a)"})_", R"_({"pattern": "\\0\\d(?:a)"})_"},
        {R"_({"pattern": "\\\\1"})_", R"_({"pattern": "\\\\1"})_"},
        {R"_({"pattern": "1\\"})_", R"_({"pattern": "1\\"})_"},
        {R"({"type": "float"})", "{}"},
        {R"({"type": 3})", "{}"},
        {R"({"type": ["string", 3]})", "{}"},
        {R"({"type": ["string", ["null"]]})", "{}"},
        {R"({"type": ["string", "text"]})", "{}"},
        {R"({"type": ["string", "null"]})", R"({"type": ["string", "null"]})"},
        {R"({"$ref": "http://a"})", "{}"},
        {R"({"$ref": 3})", "{}"},
        {R"({"$ref": "#/$defs/a"})", R"({"$ref": "#/$defs/a"})"},
        {R"({"required": "a", "enum": {}, "properties": []})", "{}"},
        {R"({"required": ["a"], "enum": [1]})", R"({"required": ["a"], "enum": [1]})"},
        {R"({"minimum": 3, "not": {"type": "float"}, "format": "date"})", R"({"minimum": 3, "not": {"type": "float"}, "format": "date"})"},
        {R"({"items": {"type": "float"}})", R"({"items": {}})"},
        {R"({"items": [{"type": "float"}, true, 3]})", R"({"items": [{}, true, {}]})"},
        {R"({"items": false})", R"({"items": false})"},
        {R"({"items": "x"})", R"({"items": {}})"},
        {R"({"additionalProperties": false})", R"({"additionalProperties": false})"},
        {R"({"additionalProperties": 3})", R"({"additionalProperties": {}})"},
        {R"({"additionalProperties": {"type": "float"}})", R"({"additionalProperties": {}})"}}) {
    json::value schema = json::parse(one.given);
    loosen_schema(schema);
    EXPECT_EQ(schema, json::parse(one.made)) << one.given;
  }
  for (const char* type : {"object", "array", "string", "number", "integer", "boolean", "null"}) {
    json::value schema = json::object{{"type", type}};
    loosen_schema(schema);
    EXPECT_TRUE(schema.as_object().contains("type")) << type;
  }
  for (const char* named : {"properties", "$defs", "definitions", "patternProperties"}) {
    json::value schema = json::object{{named, json::parse(R"({"type": {"type": "float"}, "b": 3, "c": true})")}};
    loosen_schema(schema);
    EXPECT_EQ(schema.at(named), json::parse(R"({"type": {}, "b": {}, "c": true})")) << named;
  }
  for (const char* list : {"anyOf", "allOf", "oneOf", "prefixItems"}) {
    json::value schema = json::object{{list, json::parse(R"([{"type": "float"}, 3, false])")}};
    loosen_schema(schema);
    EXPECT_EQ(schema.at(list), json::parse("[{}, {}, false]")) << list;
  }
  json::value no_schema = json::parse("[1]");
  loosen_schema(no_schema);
  EXPECT_EQ(no_schema, json::parse("[1]"));
}

TEST(LooseSchema, SettingsDependOnStrictnessAndSpelling) {
  EXPECT_EQ(json_settings(false, false), json::object());
  EXPECT_EQ(json_settings(true, false), (json::object{{"lenient", true}}));
  const json::object one{
      {"whitespace_flexible", false}, {"item_separator", ", "}, {"key_separator", ": "}, {"json_allowed_escapes", R"(nrbtf\")"}};
  EXPECT_EQ(json_settings(false, true), one);
  json::object both = one;
  both["lenient"] = true;
  EXPECT_EQ(json_settings(true, true), both);
}

TEST(CallGrammar, SchemasOfArgumentsAreObjectsThatListTheirProperties) {
  for (const SchemaChange& one :
       {SchemaChange{"[1]", R"({"type": "object", "properties": {}, "additionalProperties": false})"},
        {R"({"properties": {"a": {}}})", R"({"type": "object", "properties": {"a": {}}, "additionalProperties": false})"},
        {R"({"type": ["object", "null"], "properties": {"a": {}}})",
         R"({"type": "object", "properties": {"a": {}}, "additionalProperties": false})"},
        {R"({"type": "object", "properties": {"a": {}}, "additionalProperties": true})",
         R"({"type": "object", "properties": {"a": {}}, "additionalProperties": true})"},
        {R"({"type": "object", "properties": {"a": {}}, "required": ["a"]})",
         R"({"type": "object", "properties": {"a": {}}, "required": ["a"], "additionalProperties": false})"},
        {R"({"type": "object", "properties": {"a": {}}, "required": ["a", "b"]})",
         R"({"type": "object", "properties": {"a": {}}, "required": ["a", "b"]})"},
        {R"({"type": "object", "properties": {"a": {}}, "required": [3]})",
         R"({"type": "object", "properties": {"a": {}}, "required": [3]})"},
        {R"({"type": "object", "properties": {}, "required": ["a"]})", R"({"type": "object", "properties": {}, "required": ["a"]})"},
        {R"({"type": "object", "minProperties": 1})", R"({"type": "object", "minProperties": 1})"},
        {R"({"type": "object", "propertyNames": {}})", R"({"type": "object", "propertyNames": {}})"},
        {R"({"not": {}})", R"({"type": "object", "not": {}})"},
        {R"({"allOf": [{}], "properties": {"a": {}}})", R"({"allOf": [{}], "properties": {"a": {}}})"},
        {R"({"anyOf": [{}], "type": ["object"]})", R"({"anyOf": [{}], "type": "object"})"},
        {R"({"$ref": "#"})", R"({"$ref": "#"})"},
        {R"({"oneOf": [{}]})", R"({"oneOf": [{}]})"},
        {R"({"if": {}})", R"({"if": {}})"},
        {R"({"patternProperties": {}})", R"({"patternProperties": {}})"}})
    for (const bool strict : {false, true}) {
      json::object made =
          json::parse(schema_of_arguments({.name = "f", .parameters = json::parse(one.given), .strict = strict})).as_object();
      EXPECT_EQ(made.at("x-guidance"), json::value(json_settings(!strict, false))) << one.given;
      made.erase("x-guidance");
      EXPECT_EQ(json::value(made), json::parse(one.made)) << one.given;
    }
  EXPECT_EQ(any_arguments(), json::parse(R"({"type": "object", "additionalProperties": true})"));
}

}  // namespace
}  // namespace quire
