#include "text/tool_calls/json_object.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quire {
namespace {

// Returns "whole" or "bad" with the number of bytes read, or "open".
std::string object_state(std::string_view text) {
  JsonObject object;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const JsonState state = object.push(text[i]);
    if (state != JsonState::open) return (state == JsonState::whole ? "whole " : "bad ") + std::to_string(i + 1);
  }
  return "open";
}

std::string nested_objects(int levels) {
  std::string text;
  for (int i = 1; i < levels; ++i) text += "{\"a\":";
  return text + "{}" + std::string(static_cast<std::size_t>(levels) - 1, '}');
}

TEST(JsonObject, EndsAtItsLastBracketAndFailsAtTheFirstWrongByte) {
  for (const auto& [text, state] : {std::pair("{}", "whole 2"),
                                    {"{} ", "whole 2"},
                                    {R"({"a": [{}, "}"]})", "whole 16"},
                                    {"[", "bad 1"},
                                    {" {", "bad 1"},
                                    {"1", "bad 1"},
                                    {"{1", "bad 2"},
                                    {R"({"a" 1)", "bad 6"},
                                    {R"({"a": 1,})", "bad 9"},
                                    {R"({"a": tr)", "open"},
                                    {R"({"a": 1)", "open"},
                                    {"", "open"}})
    EXPECT_EQ(object_state(text), state) << text;
  EXPECT_EQ(object_state(nested_objects(64)), "whole " + std::to_string(nested_objects(64).size()));
  EXPECT_EQ(object_state(nested_objects(65)).substr(0, 3), "bad");
}

const std::vector<Tool>& clock_only() {
  static const std::vector<Tool> tools{{.name = "clock"}};
  return tools;
}

// Returns what the call writes: "name arguments", or "bad" or "open" after what was written.
std::string call_text(std::string_view text, const std::vector<Tool>* tools) {
  AnswerParts parts;
  CallWriter writer(parts, 9);
  JsonCall call(tools);
  std::string end = "open";
  for (const char byte : text) {
    const JsonState state = call.push(byte, writer);
    if (state == JsonState::open) continue;
    end = state == JsonState::whole ? "" : "bad";
    break;
  }
  std::string written;
  for (const AnswerPart& part : parts.take()) written += part.kind == AnswerPart::Kind::call ? part.text + " " : part.text;
  return written + end;
}

struct CallCase {
  std::string_view text, any_tool, known_tool;  // what is written without and with a list of tools
};

TEST(JsonCall, ReadsANameAndArgumentsInAnyOrder) {
  for (const CallCase& one :
       {CallCase{R"({"name": "clock"})", "clock {}", "clock {}"},
        {R"({"name": "clock", "arguments": {"a": 1}})", R"(clock {"a": 1})", R"(clock {"a": 1})"},
        {R"({"arguments": {"a": {"b": []}}, "name": "clock"})", R"(clock {"a": {"b": []}})", R"(clock {"a": {"b": []}})"},
        {R"({"name": "clock", "parameters": {}})", "clock {}", "clock {}"},
        {R"({"name": "cl\u006fck", "arguments": null})", "clock {}", "clock {}"},
        {R"({"name": "clock", "arguments": "{\"a\": 1}"})", R"(clock {"a": 1})", R"(clock {"a": 1})"},
        {R"({"arguments": "{}", "name": "clock"})", "clock {}", "clock {}"},
        {R"({"name": "clock", "arguments": ""})", "clock {}", "clock {}"},
        {R"({"name": "clock", "arguments": {"name": 3, "arguments": []}})", R"(clock {"name": 3, "arguments": []})",
         R"(clock {"name": 3, "arguments": []})"},
        {R"({"id": {"name": 1}, "type": ["x"], "name": "clock"})", "clock {}", "clock {}"},
        {R"({"name": "clock", "arguments": {}, "id": "a"})", "clock {}", "clock {}"},
        {R"({"more": 1, "name": "clock"})", "clock {}", "bad"},
        {R"({"more": {"name": 3}, "name": "clock"})", "clock {}", "bad"},
        {R"({"name": "chess", "arguments": {"a": 1}})", R"(chess {"a": 1})", "bad"},
        {R"({"name": "chess"})", "chess {}", "bad"}}) {
    EXPECT_EQ(call_text(one.text, nullptr), one.any_tool) << one.text;
    EXPECT_EQ(call_text(one.text, &clock_only()), one.known_tool) << one.text;
  }
}

TEST(JsonCall, RejectsObjectsThatAreNoCalls) {
  for (const std::string_view text :
       {R"({})", R"({"name": ""})", R"({"name": null})", R"({"name": 3})", R"({"name": true})", R"({"name": {}})", R"({"name": ["clock"]})",
        R"({"arguments": {}})", R"({"arguments": [1], "name": "clock"})", R"({"arguments": 3, "name": "clock"})",
        R"({"arguments": false, "name": "clock"})", R"({"arguments": 1.5, "name": "clock"})", R"({"arguments": "[1]", "name": "clock"})",
        R"({"arguments": "x", "name": "clock"})", R"({"name": "clock", "name": "clock"})",
        R"({"arguments": null, "parameters": {}, "name": "clock"})", R"([{"name": "clock"}])"})
    for (const std::vector<Tool>* tools : {static_cast<const std::vector<Tool>*>(nullptr), &clock_only()})
      EXPECT_EQ(call_text(text, tools), "bad") << text;
}

TEST(JsonCall, WritesArgumentsFromTheirFirstByte) {
  EXPECT_EQ(call_text(R"({"name": "clock", "arguments": )", nullptr), "open");
  EXPECT_EQ(call_text(R"({"name": "clock", "arguments": {)", nullptr), "clock {open");
  EXPECT_EQ(call_text(R"({"name": "clock", "arguments": {"a": 1})", nullptr), R"(clock {"a": 1}open)");
  EXPECT_EQ(call_text(R"({"name": "clock", "arguments": {"a": 1}, "id": [)", nullptr), R"(clock {"a": 1}open)");
  EXPECT_EQ(call_text(R"({"arguments": {"a": 1}, "name": "clock")", nullptr), "open");
  EXPECT_EQ(call_text(R"({"name": "clock", "arguments": {"a": x)", nullptr), R"(clock {"a": bad)");
}

struct Completed {
  std::string_view begun;
  std::optional<std::string_view> dropped, closed;
};

TEST(CompleteObject, KeepsAllFieldsUpToTheLastCompleteValue) {
  for (const Completed& one : {Completed{"", {}, {}},
                               {"{", "{}", "{}"},
                               {R"({"a)", "{}", "{}"},
                               {R"({"a")", "{}", "{}"},
                               {R"({"a": )", "{}", "{}"},
                               {R"({"a": 1)", "{}", "{}"},
                               {R"({"a": 12,)", R"({"a": 12})", R"({"a": 12})"},
                               {R"({"a": 12 )", R"({"a": 12})", R"({"a": 12})"},
                               {R"({"a": 12})", R"({"a": 12})", R"({"a": 12})"},
                               {R"({"a": tru)", "{}", "{}"},
                               {R"({"a": true)", R"({"a": true})", R"({"a": true})"},
                               {R"({"a": null)", R"({"a": null})", R"({"a": null})"},
                               {R"({"a": [)", R"({"a": []})", R"({"a": []})"},
                               {R"({"a": [1, 2)", R"({"a": [1]})", R"({"a": [1]})"},
                               {R"({"a": [1, {"b": "c", )", R"({"a": [1, {"b": "c"}]})", R"({"a": [1, {"b": "c"}]})"},
                               {R"({"a": [[1], {"b": {)", R"({"a": [[1], {"b": {}}]})", R"({"a": [[1], {"b": {}}]})"},
                               {R"({"a": [1], "b)", R"({"a": [1]})", R"({"a": [1]})"},
                               {R"({"a": "x)", "{}", R"({"a": "x"})"},
                               {R"({"a": ")", "{}", R"({"a": ""})"},
                               {R"({"a": "x")", R"({"a": "x"})", R"({"a": "x"})"},
                               {R"({"a": "x\"y)", "{}", R"({"a": "x\"y"})"},
                               {R"({"a": "x\)", "{}", R"({"a": "x"})"},
                               {R"({"a": "x\\)", "{}", R"({"a": "x\\"})"},
                               {R"({"a": "x\u00)", "{}", R"({"a": "x"})"},
                               {R"({"a": "x\ud83d\ude0)", "{}", R"({"a": "x"})"},
                               {R"({"a": "x\ud83d\ude00)", "{}", R"({"a": "x\ud83d\ude00"})"},
                               {R"({"k": "x", "y)", R"({"k": "x"})", R"({"k": "x"})"},
                               {R"({"k": 1, "y": ["a", "b)", R"({"k": 1, "y": ["a"]})", R"({"k": 1, "y": ["a", "b"]})"},
                               {"[1, 2]", {}, {}},
                               {"[1,", {}, {}},
                               {"x", {}, {}},
                               {R"({"a" 1)", {}, {}},
                               {R"({"a": 1} x)", {}, {}},
                               {R"({"a": 1} )", R"({"a": 1} )", R"({"a": 1} )"}}) {
    EXPECT_EQ(complete_object(one.begun, UnterminatedString::dropped), one.dropped) << one.begun;
    EXPECT_EQ(complete_object(one.begun, UnterminatedString::closed), one.closed) << one.begun;
  }
}

}  // namespace
}  // namespace quire
