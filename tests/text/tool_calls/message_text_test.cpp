// Checks how messages, definitions of tools and calls of earlier turns change for templates.
#include "text/tool_calls/message_text.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <string>
#include <string_view>

#include "text/tool_calls/call_rounds.h"
#include "text/tool_calls/template_roles.h"
#include "text/tool_calls/tool_definitions.h"
#include "text/tool_calls/tool_prompt.h"

namespace quire {
namespace {

namespace json = boost::json;

struct TextOf {
  std::string_view message, text;
};

TEST(MessageText, IsTheContentOrItsPartsInLines) {
  for (const TextOf& one : {TextOf{R"({"content": "a"})", "a"},
                            {"{}", ""},
                            {R"({"content": null})", ""},
                            {R"({"content": 3})", ""},
                            {R"({"content": []})", ""},
                            {R"({"content": [{"type": "text", "text": "a"}, {"type": "image"}, 3, {"text": 4}, {"text": "b"}]})", "a\nb"},
                            {R"({"content": [{"text": ""}, {"text": "b"}]})", "b"}})
    EXPECT_EQ(text_of(json::parse(one.message).as_object()), one.text) << one.message;
}

struct PutText {
  std::string_view content, before, after;  // the content, and the content with "T" put before or after it
};

TEST(MessageText, HasAnEmptyLineNextToInsertedText) {
  for (const PutText& one : {PutText{R"("a")", R"("T\n\na")", R"("a\n\nT")"},
                             {R"("")", R"("T")", R"("T")"},
                             {"null", R"("T")", R"("T")"},
                             {"3", R"("T")", R"("T")"},
                             {"[]", R"([{"type": "text", "text": "T"}])", R"([{"type": "text", "text": "T"}])"},
                             {R"([{"type": "image"}])", R"([{"type": "text", "text": "T\n\n"}, {"type": "image"}])",
                              R"([{"type": "image"}, {"type": "text", "text": "\n\nT"}])"}}) {
    json::object before{{"content", json::parse(one.content)}}, after = before;
    put_before(before, "T");
    put_after(after, "T");
    EXPECT_EQ(before.at("content"), json::parse(one.before)) << one.content;
    EXPECT_EQ(after.at("content"), json::parse(one.after)) << one.content;
  }
}

TEST(MessageText, PartsAreShownIfEachTextIsInTheResult) {
  const json::array parts =
      json::parse(R"([{"role": "user", "content": [{"type": "text", "text": " a \n"}, {"type": "image"}, {"text": "b"}]},
                                            {"role": "user", "content": "c"}, 3])")
          .as_array();
  EXPECT_TRUE(has_text_parts(parts));
  EXPECT_FALSE(has_text_parts(json::parse(R"([{"content": "c"}, {}, 3])").as_array()));
  EXPECT_TRUE(shows_text_parts(parts, "<a><b>"));
  EXPECT_FALSE(shows_text_parts(parts, "<a>"));
  EXPECT_FALSE(shows_text_parts(parts, "<b>"));
  for (const char* printed : {"'type': 'text' a b", R"("type": "text" a b)", R"("type":"text" a b)"})
    EXPECT_FALSE(shows_text_parts(parts, printed)) << "the template printed the list";
  json::array joined = parts;
  join_text_parts(joined);
  EXPECT_EQ(joined[0].at("content"), " a \n\nb");
  EXPECT_EQ(joined[1].at("content"), "c");
  EXPECT_EQ(joined[2], 3);
}

TEST(MessageText, RolesAreComparedAsTexts) {
  EXPECT_TRUE(has_role({{"role", "tool"}}, "tool"));
  EXPECT_FALSE(has_role({{"role", "tools"}}, "tool"));
  EXPECT_FALSE(has_role({{"role", nullptr}}, "tool"));
  EXPECT_FALSE(has_role({}, "tool"));
}

// Calls of earlier turns -----------------------------------------------------------------------------------------------------------------

struct WrittenAs {
  std::string_view source, text;
};

TEST(WriteCalls, HasTheDelimitersOfEachFormat) {
  const json::array calls =
      json::parse(R"([{"function": {"name": "f", "arguments": {"a": 1, "b": ["é", {}]}}}, {"function": {"name": "g"}}])").as_array();
  for (const WrittenAs& one :
       {WrittenAs{
            "<|channel|><|message|>",
            "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": 1, \"b\": [\"é\", {}]}<|call|><|start|>assistant"
            "<|channel|>commentary to=functions.g <|constrain|>json<|message|>{}<|call|>"},
        {"<｜tool▁calls▁begin｜>```json",
         "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": 1, \"b\": [\"é\", "
         "{}]}\n```<｜tool▁call▁end｜>\n"
         "<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
        {"<｜tool▁calls▁begin｜>",
         "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": 1, \"b\": [\"é\", {}]}<｜tool▁call▁end｜><｜tool▁call▁begin｜>g"
         "<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
        {"<|tool_calls_section_begin|>",
         "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\": 1, \"b\": [\"é\", {}]}"
         "<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>"},
        {"[TOOL_CALLS]", R"([TOOL_CALLS][{"name": "f", "arguments": {"a": 1, "b": ["é", {}]}}, {"name": "g", "arguments": {}}])"},
        {"<TOOLCALL>", R"(<TOOLCALL>[{"name": "f", "arguments": {"a": 1, "b": ["é", {}]}}, {"name": "g", "arguments": {}}]</TOOLCALL>)"},
        {"<tool_call> \"arguments\"",
         "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1, \"b\": [\"é\", {}]}}\n</tool_call>\n<tool_call>\n{\"name\": \"g\", "
         "\"arguments\": {}}\n</tool_call>"},
        {"<|tool_call_start|>", "<|tool_call_start|>[f(a=1, b=[\"é\", {}]), g()]<|tool_call_end|>"},
        {"{\"name\": function name, \"parameters\": dictionary",
         "{\"name\": \"f\", \"parameters\": {\"a\": 1, \"b\": [\"é\", {}]}}\n{\"name\": \"g\", \"parameters\": {}}"},
        {"", R"([{"name": "f", "arguments": {"a": 1, "b": ["é", {}]}}, {"name": "g", "arguments": {}}])"}})
    EXPECT_EQ(write_calls(detect_call_format(one.source), calls), one.text) << one.source;
  EXPECT_EQ(write_calls(CallFormat{}, {calls[1]}), R"({"name": "g", "arguments": {}})") << "one call is no list";
  EXPECT_EQ(write_calls(CallFormat{}, json::parse(R"([{"function": 3}])").as_array()), R"({"name": "", "arguments": {}})");
}

TEST(DescribeTools, ShowsEachToolAndAnExample) {
  const json::array tools = json::parse(R"([{"name":"f","n":[1,null]},{"name":"g"}])").as_array();
  EXPECT_EQ(
      describe_tools(CallFormat{}, tools),
      "You may call these functions:\n{\"name\": \"f\", \"n\": [1, null]}\n{\"name\": \"g\"}\n\nTo call a function, answer with this and "
      "nothing else, with the function's name and its arguments:\n{\"name\": \"function_name\", \"arguments\": {\"argument\": "
      "\"value\"}}\nTo call several, answer with a JSON array of such objects.\nWhere no function helps, answer in plain words.");
  const std::string marked = describe_tools(detect_call_format("<|tool_call_start|>"), tools);
  EXPECT_NE(marked.find("<|tool_call_start|>[function_name(argument=\"value\")]<|tool_call_end|>\nWhere no"), std::string::npos) << marked;
}

TEST(AdaptMessages, ChangesOnlyWhatTheTemplateDoesNotShow) {
  const json::value tools = json::parse(R"([{"name": "f"}])");
  const auto adapted = [&](const char* source, const char* messages, const json::value& given) {
    json::array changed = json::parse(messages).as_array();
    adapt_messages(detect_call_format(source), given, changed);
    return changed;
  };
  const char* const called = R"([{"role": "assistant", "content": "I look.", "tool_calls": [{"function": {"name": "f"}}]}])";
  EXPECT_EQ(adapted("tool", called, nullptr),
            json::parse(R"([{"role": "assistant", "content": "I look.\n{\"name\": \"f\", \"arguments\": {}}"}])"));
  const char* const parts = R"([{"role": "tool", "content": [{"type": "text", "text": "a"}]}, 3, {"role": "tool", "content": "b"}])";
  EXPECT_EQ(adapted("x", parts, nullptr), json::parse(R"([{"role": "user", "content": [{"type": "text", "text": "<tool_response>\n"},
      {"type": "text", "text": "a"}, {"type": "text", "text": "\n</tool_response>"}]}, 3,
      {"role": "user", "content": "<tool_response>\nb\n</tool_response>"}])"));
  EXPECT_EQ(adapted("tool", parts, nullptr), json::parse(parts));
  const char* const hello = R"([{"role": "user", "content": "hello"}])";
  EXPECT_EQ(adapted("x", hello, tools).size(), 2U);
  EXPECT_EQ(adapted("tools", hello, tools), json::parse(hello));
  EXPECT_EQ(adapted("x", hello, json::array()), json::parse(hello));
  EXPECT_EQ(adapted("x", hello, nullptr), json::parse(hello));
}

// The expected values are the beginnings of FNV-1a's published test vectors for "", "a" and "foobar".
TEST(AdaptMessages, ShortIdsAreTheIdOrItsHash) {
  for (const auto& [id, expected] :
       {std::pair("", "cbf29ce48"), {"a", "af63dc4c8"}, {"foobar", "85944171f"}, {"abcDEF019", "abcDEF019"}, {"azAZ09xyz", "azAZ09xyz"}}) {
    json::array messages{json::object{{"role", "tool"}, {"tool_call_id", id}},
                         json::object{{"role", "assistant"}, {"tool_calls", json::array{json::object{{"id", id}}}}}};
    CallFormat format;
    format.wants_short_ids = format.shows_results = true;
    format.shows_calls = std::string_view(id).empty() ? false : true;
    if (!format.shows_calls) messages.pop_back();
    adapt_messages(format, nullptr, messages);
    EXPECT_EQ(messages[0].at("tool_call_id"), expected) << id;
    if (format.shows_calls) EXPECT_EQ(messages[1].at("tool_calls").at(0).at("id"), expected) << id;
  }
  for (const char* id : {"abcdefgh-", "abcdefghij-", "a-bcdefghi", "abcdefgh", "abcdefghij"}) {
    CallFormat format;
    format.wants_short_ids = format.shows_results = format.shows_calls = true;
    json::array messages{json::object{{"role", "tool"}, {"tool_call_id", id}}};
    adapt_messages(format, nullptr, messages);
    const json::string& made = messages[0].at("tool_call_id").as_string();
    EXPECT_EQ(made.size(), 9U) << id;
    EXPECT_NE(made, std::string_view(id).substr(0, 9)) << "a hash, not a part of the id";
  }
}

TEST(FillIds, NumbersCallsWithoutAnId) {
  const char* const messages =
      R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}, {"id": "x", "function": {"name": "g"}}]},
      {"role": "tool", "content": "1"}, {"role": "tool", "tool_call_id": "x", "content": "2"},
      {"role": "assistant", "tool_calls": [{"id": "", "function": {"name": "h"}}, 3]}, {"role": "tool", "name": "h", "content": "3"}])";
  json::array plain = json::parse(messages).as_array(), kimi = plain;
  fill_ids(plain, false);
  fill_ids(kimi, true);
  EXPECT_EQ(plain[0].at("tool_calls").at(0).at("id"), "call_0");
  EXPECT_EQ(plain[0].at("tool_calls").at(1).at("id"), "x");
  EXPECT_EQ(plain[1].at("tool_call_id"), "call_0");
  EXPECT_EQ(plain[2].at("tool_call_id"), "x");
  EXPECT_EQ(plain[3].at("tool_calls").at(0).at("id"), "call_2");
  EXPECT_EQ(plain[4].at("tool_call_id"), "call_2");
  EXPECT_EQ(kimi[0].at("tool_calls").at(0).at("id"), "functions.f:0");
  EXPECT_EQ(kimi[1].at("tool_call_id"), "functions.f:0");
  EXPECT_EQ(kimi[3].at("tool_calls").at(0).at("id"), "functions.h:2");
}

// Definitions of tools -------------------------------------------------------------------------------------------------------------------

struct FilledType {
  std::string_view schema;
  const char* type;
};

TEST(FillIn, GivesEachSchemaTheTypeThatDescribesItBest) {
  for (const FilledType& one : {FilledType{R"({"type": "number"})", "number"},
                                {R"({"type": "float"})", "string"},
                                {R"({"type": 3})", "string"},
                                {R"({"type": ["null", "integer", "string"]})", "integer"},
                                {R"({"type": ["null"], "items": {}})", "array"},
                                {R"({"const": true})", "boolean"},
                                {R"({"const": 3})", "integer"},
                                {R"({"const": 18446744073709551615})", "integer"},
                                {R"({"const": 1.5})", "number"},
                                {R"({"const": []})", "array"},
                                {R"({"const": {}})", "object"},
                                {R"({"const": "a"})", "string"},
                                {R"({"const": null})", "string"},
                                {R"({"enum": [1.5, "a"]})", "number"},
                                {R"({"enum": [], "items": {}})", "array"},
                                {R"({"enum": 3, "prefixItems": []})", "array"},
                                {R"({"properties": {}})", "object"},
                                {R"({"additionalProperties": true})", "object"},
                                {R"({"oneOf": [{"type": "null"}, {"type": "array"}]})", "array"},
                                {R"({"allOf": [{"type": "number"}]})", "number"},
                                {R"({"anyOf": [{"items": {}}]})", "array"},
                                {R"({"anyOf": [3, {"type": "null"}]})", "string"},
                                {R"({"anyOf": [{"type": "null"}], "oneOf": [{"type": "boolean"}]})", "boolean"},
                                {"true", "string"},
                                {"{}", "string"}}) {
    json::value tools = json::array{json::object{
        {"function",
         json::object{{"name", "f"}, {"parameters", json::object{{"properties", json::object{{"a", json::parse(one.schema)}}}}}}}}};
    fill_in(tools, ToolFields::schemas);
    const json::value& made = tools.at(0).at("function").at("parameters").at("properties").at("a");
    EXPECT_EQ(made.at("type"), one.type) << one.schema;
    EXPECT_EQ(made.at("description"), "") << one.schema;
    if (made.at("type") == "array") EXPECT_EQ(made.at("items").at("type"), "string") << one.schema;
    if (made.at("type") == "object") {
      EXPECT_TRUE(made.at("properties").is_object()) << one.schema;
      EXPECT_EQ(made.at("additionalProperties").at("type"), "string") << one.schema;
    }
  }
}

TEST(FillIn, KeepsFieldsAndWritesDefaultsOfChoicesAsText) {
  json::value tools =
      json::parse(R"([{"type": "custom", "function": {"name": "f", "description": "D", "parameters": {"type": "x", "properties":
      {"a": {"enum": ["x"], "default": null}, "b": {"oneOf": [{"const": 1}], "default": [1]}, "c": {"default": 3, "description": "d"},
       "d": {"enum": ["x"], "default": "x"}, "e": {"description": 3}}}}},
      {"function": {"name": "g", "description": null, "parameters": 3}}, {"function": 3, "name": "h"}, {"other": 1}, 3])");
  json::value functions = tools;
  fill_in(tools, ToolFields::schemas);
  const json::value& first = tools.at(0);
  EXPECT_EQ(first.at("type"), "custom");
  EXPECT_EQ(first.at("function").at("description"), "D");
  EXPECT_EQ(first.at("function").at("parameters").at("type"), "x");
  const json::value& properties = first.at("function").at("parameters").at("properties");
  EXPECT_FALSE(properties.at("a").as_object().contains("default"));
  EXPECT_EQ(properties.at("b").at("default"), "[1]");
  EXPECT_EQ(properties.at("b").at("oneOf").at(0).at("type"), "integer") << "each option is filled";
  EXPECT_EQ(properties.at("c").at("default"), 3);
  EXPECT_EQ(properties.at("c").at("description"), "d");
  EXPECT_EQ(properties.at("d").at("default"), "x");
  EXPECT_EQ(properties.at("e").at("description"), "");
  EXPECT_EQ(
      tools.at(1),
      json::parse(
          R"({"type": "function", "function": {"name": "g", "description": "", "parameters": {"type": "object", "properties": {}}}})"));
  EXPECT_EQ(tools.at(2).at("description"), "");
  EXPECT_EQ(tools.at(3), json::parse(R"({"other": 1})"));
  EXPECT_EQ(tools.at(4), 3);
  fill_in(functions, ToolFields::functions);
  EXPECT_EQ(functions.at(0).at("function").at("parameters").at("properties").at("e"), json::parse(R"({"description": 3})"))
      << "schemas of properties stay as sent";
}

TEST(DropNulls, KeepsNullsOfValuesInEverySchema) {
  for (const char* value : {"default", "const", "enum", "examples", "example"}) {
    json::value tools = json::array{json::object{{value, nullptr}, {"title", nullptr}}};
    drop_nulls_of_tools(tools);
    EXPECT_EQ(tools.at(0).as_object(), (json::object{{value, nullptr}})) << value;
  }
  for (const char* named : {"properties", "$defs", "definitions", "patternProperties", "dependentSchemas"}) {
    json::value tools = json::array{json::object{{named, json::parse(R"({"title": null, "a": {"title": null}})")}}};
    drop_nulls_of_tools(tools);
    EXPECT_EQ(tools.at(0).at(named), json::parse(R"({"title": {}, "a": {}})")) << named;
  }
  json::value list = json::parse(R"([{"properties": [{"title": null}], "anyOf": [null, {"title": null}]}])");
  drop_nulls_of_tools(list);
  EXPECT_EQ(list, json::parse(R"([{"properties": [{}], "anyOf": [null, {}]}])"));
  json::value none = nullptr;
  drop_nulls_of_tools(none);
  EXPECT_TRUE(none.is_null());
}

// Roles ----------------------------------------------------------------------------------------------------------------------------------

TEST(TemplateRoles, DetectArgumentsThatMustBeText) {
  const auto roles = [](const std::string& source) { return find_roles(ChatTemplate::parse(source).value(), source); };
  const std::string begin = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls %}";
  const std::string end = "{% endfor %}{% endfor %}";
  const TemplateRoles joined = roles(begin + "{{ '(' + c.function.arguments + ')' }}" + end);
  EXPECT_TRUE(joined.text_arguments);
  EXPECT_TRUE(joined.calls);
  const TemplateRoles shown = roles(begin + "{{ c.function.arguments | tojson }}" + end);
  EXPECT_FALSE(shown.text_arguments);
  EXPECT_TRUE(shown.calls);
  const TemplateRoles named = roles(begin + "{{ c.function.name }}" + end);
  EXPECT_FALSE(named.calls) << "the arguments are missing";
  const TemplateRoles two = roles(
      "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('late') }}{% endif %}"
      "<{{ m.role }}>{{ m.content }}{% endfor %}");
  EXPECT_TRUE(two.system && two.several_users);
  EXPECT_FALSE(two.several_systems || two.late_system || two.developer);
}

}  // namespace
}  // namespace quire
