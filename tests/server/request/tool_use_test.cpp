// Tests the errors of tools and tool_choice, and which tools may be called.
#include "server/request/tool_use.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/request/request_bodies.h"

namespace quire {
namespace {

TEST(ToolErrors, NameTheToolTheProblemAndTheFix) {
  const std::string f = R"({"type": "function", "function": {"name": "f"}})";
  const auto tools = [](const std::string& list, const std::string& choice = {}) {
    return kHiMessage + R"(, "tools": )" + list + (choice.empty() ? "" : R"(, "tool_choice": )" + choice);
  };
  const BodyCase cases[] = {
      {tools("3"), "tools: must be an array, not integer 3"},
      {tools("[3]"), "tools[0]: must be an object, not integer 3"},
      {tools("[" + f + R"(, {"type": "functoin", "name": "g"}])"), "accepted"},
      {tools(R"([{"type": "functoin", "function": {"name": "g"}}])"), R"(tools[0].type: is string "functoin"; did you mean "function"?)"},
      {tools(R"([{"type": "function"}])"), R"(tools[0].function: is missing; send {"type": "function", "function": {"name": "..."}})"},
      {tools(R"([{"type": "function", "function": "f"}])"), R"(tools[0].function: must be an object, not string "f")"},
      {tools(R"([{"type": "function", "function": {}}])"),
       "tools[0].function.name: is missing; use at most 128 letters, digits and _ - . : /"},
      {tools(R"([{"type": "function", "function": {"name": "a b"}}])"),
       R"(tools[0].function.name: is string "a b"; use at most 128 letters, digits and _ - . : /)"},
      {tools(R"([{"type": "function", "function": {"name": ""}}])"),
       R"(tools[0].function.name: is string ""; use at most 128 letters, digits and _ - . : /)"},
      {tools(R"([{"type": "function", "function": {"name": )" + quoted_text(129) + "}}]"),
       "tools[0].function.name: is string; use at most 128 letters, digits and _ - . : /"},
      {tools(R"([{"type": "function", "function": {"name": )" + quoted_text(128) + "}}]"), "accepted"},
      {tools(R"([{"type": "function", "function": {"name": "azAZ09_-.:/"}}])"), "accepted"},
      {tools(R"([{"type": "function", "function": {"name": "f", "parameters": 3}}])"),
       "tools[0].function.parameters: must be a JSON schema, not integer 3"},
      {tools(R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "array"}, "strict": true}}])"),
       R"(tools[0].function.parameters.type: is string "array"; use "object": arguments are an object)"},
      {tools(R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "array"}}}])"), "accepted"},
      {tools("[" + f + ", " + f + "]"), "tools[1].function.name: 'f' is used twice; give each tool a different name"},
      {tools("[" + f + "]", "3"),
       R"(tool_choice: is integer 3; send "auto", "none", "required" or {"type": "function", "function": {"name": "..."}})"},
      {tools("[]", "\"required\""), "tool_choice: requires a function in tools; send functions: this server does not run tools"},
      {tools("[" + f + "]", R"({"type": "function"})"),
       R"(tool_choice: does not name a function; send {"type": "function", "function": {"name": "..."}})"},
      {tools("[" + f + "]", R"({"type": "any", "name": "f"})"),
       R"(tool_choice: does not name a function; send {"type": "function", "function": {"name": "..."}})"},
      {tools("[" + f + "]", R"({"type": "function", "function": {"name": "g"}})"),
       "tool_choice: names 'g', which is not in tools; name a function in tools"},
      {tools("[" + f + "]", R"({"type": "allowed_tools", "allowed_tools": {}})"),
       "tool_choice.allowed_tools.tools: must be an array of tools"},
      {tools("[" + f + "]", R"({"type": "allowed_tools", "allowed_tools": 5})"),
       "tool_choice.allowed_tools.tools: must be an array of tools"},
      {tools("[" + f + "]", R"({"type": "allowed_tools", "allowed_tools": {"tools": []}})"),
       "tool_choice.allowed_tools.tools: must be an array of tools"},
      {tools("[" + f + "]", R"({"type": "allowed_tools", "mode": "any", "tools": [{"type": "function", "name": "f"}]})"),
       R"(tool_choice.allowed_tools.mode: is string "any"; use auto or required)"},
      {tools("[" + f + "]", R"({"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}]})"),
       "tool_choice: requires a tool that the server would have to run; allow a function"},
      {tools("[" + f + "]", R"({"type": "allowed_tools", "tools": [{"type": "function", "name": "g"}]})"),
       "tool_choice: names 'g', which is not in tools; name a function in tools"},
      {kHiMessage + R"(, "parallel_tool_calls": 1)", "parallel_tool_calls: must be a boolean, not integer 1; send true or false"},
  };
  for (const BodyCase& one : cases) EXPECT_EQ(request_error(chat_request(one.fields)), one.error) << one.fields.substr(0, 250);
}

TEST(ToolChoice, SelectsWhichToolsMayOrMustBeCalled) {
  using Choice = ToolUse::Choice;
  struct ChoiceCase {
    std::string fields;
    Choice choice;
    std::string names;
    bool parallel;
    bool is_shown;  // the template gets the tools
  };
  const std::string both = R"(, "tools": [{"function": {"name": "f"}}, {"function": {"name": "g"}}])";
  const ChoiceCase cases[] = {
      {"", Choice::none, "", true, false},
      {R"(, "tools": [])", Choice::none, "", true, false},
      {both, Choice::automatic, "fg", true, true},
      {both + R"(, "tool_choice": "auto", "parallel_tool_calls": false)", Choice::automatic, "fg", false, true},
      {both + R"(, "tool_choice": "none")", Choice::none, "fg", true, false},
      {both + R"(, "tool_choice": "required")", Choice::required, "fg", true, true},
      {both + R"(, "tool_choice": {"type": "function", "function": {"name": "g"}})", Choice::required, "g", false, true},
      {both + R"(, "tool_choice": {"type": "function", "name": "f"})", Choice::required, "f", false, true},
      {both +
           R"(, "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "name": "g"}]}})",
       Choice::automatic, "g", true, true},
      {both +
           R"(, "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"function": {"name": "f"}}]}})",
       Choice::required, "f", true, true},
      {both + R"(, "tool_choice": {"type": "allowed_tools", "tools": [{"type": "function", "name": "g"}]})", Choice::automatic, "g", true,
       true},
      {both + R"(, "tool_choice": {"type": "allowed_tools", "tools": [{"type": "web_search"}]})", Choice::none, "", true, true},
      {R"(, "tools": [{"type": "web_search"}, {"function": {"name": "f"}}])", Choice::automatic, "f", true, true},
  };
  for (const ChoiceCase& one : cases) {
    const auto request = chat_request(kHiMessage + one.fields);
    ASSERT_TRUE(request) << one.fields << request.error().to_string();
    EXPECT_EQ(request->tool_use.choice, one.choice) << one.fields;
    EXPECT_EQ(request->tool_use.parallel, one.parallel) << one.fields;
    std::string names;
    for (const Tool& tool : request->tool_use.tools) names += tool.name;
    EXPECT_EQ(names, one.names) << one.fields;
    EXPECT_EQ(request->chat.tools.is_array(), one.is_shown) << one.fields;
  }
  const auto request = chat_request(kHiMessage + R"(, "tools": [{"type": "mcp"}, {"function": {"name": "f", "strict": true,
      "parameters": {"type": "object"}}}, {"type": "web_search"}])");
  ASSERT_TRUE(request);
  EXPECT_EQ(request->ignored, (std::vector<std::string>{"tools[0]:mcp", "tools[2]:web_search"}));
  ASSERT_EQ(request->chat.tools.as_array().size(), 1U) << "templates see only functions";
  EXPECT_EQ(request->chat.tools.as_array()[0].at("function").at("name"), "f");
  ASSERT_EQ(request->tool_use.tools.size(), 1U);
  EXPECT_EQ(request->tool_use.tools[0].index, 1U) << "the index is the position in the body";
  EXPECT_TRUE(request->tool_use.tools[0].strict);
  EXPECT_EQ(request->tool_use.tools[0].parameters.at("type"), "object");
}

}  // namespace
}  // namespace quire
