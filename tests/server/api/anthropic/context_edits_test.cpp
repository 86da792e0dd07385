// Tests which parts of a conversation context_management removes and keeps.
#include "server/api/anthropic/context_edits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "server/api/anthropic/messages_bodies.h"
#include "server/api/anthropic/messages_request.h"

namespace quire {
namespace {

namespace json = boost::json;

// A conversation of two user turns. The first has two calls, and each answer has reasoning.
const char* const kChat = R"({"messages": [
  {"role": "user", "content": "a"},
  {"role": "assistant", "content": "", "reasoning_content": "t1",
   "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]},
  {"role": "tool", "tool_call_id": "c1", "content": "r1"},
  {"role": "user", "content": "a reminder beside the result"},
  {"role": "assistant", "content": "", "reasoning_content": "t2",
   "tool_calls": [{"id": "c2", "type": "function", "function": {"name": "g", "arguments": {"x": 2}}}]},
  {"role": "tool", "tool_call_id": "c2", "content": "r2"},
  {"role": "assistant", "content": "b", "reasoning_content": "t3"},
  {"role": "user", "content": "c"},
  {"role": "assistant", "content": "", "reasoning_content": "t4",
   "tool_calls": [{"id": "c3", "type": "function", "function": {"name": "f", "arguments": {"x": 3}}}]},
  {"role": "tool", "tool_call_id": "c3", "content": "r3"}]})";

struct Left {
  std::string thoughts, results, arguments;
  bool operator==(const Left&) const = default;
};

// Returns the remaining parts of a prompt of `num_tokens`; each cleared result removes 10 tokens.
Left left(const std::string& edits, std::size_t num_tokens = 1000) {
  json::value management = json::parse(R"({"edits": [)" + edits + "]}");
  json::object body;
  ObjectReader reader(body);
  const auto read = read_context_edits(reader, management);
  const auto done = reader.finish();
  EXPECT_TRUE(done.has_value()) << done.error().to_string();
  json::object chat = json::parse(kChat).as_object();
  const auto count = [&](const json::object& counted) -> Result<std::size_t> {
    const std::string text = json::serialize(counted);
    std::size_t num_cleared = 0;
    for (std::size_t at = text.find("cleared]"); at != std::string::npos; at = text.find("cleared]", at + 1)) ++num_cleared;
    return num_tokens - 10 * num_cleared;
  };
  EXPECT_TRUE(apply_context_edits(read, chat, count).has_value());
  Left out;
  for (const json::value& value : chat.at("messages").as_array()) {
    const json::object& message = value.as_object();
    if (const auto* thought = message.if_contains("reasoning_content")) out.thoughts += thought->as_string();
    if (message.at("role") == "tool") out.results += message.at("content") == "[Old tool result content cleared]" ? "-" : "+";
    if (const auto* calls = message.if_contains("tool_calls"))
      out.arguments += calls->at(0).at("function").at("arguments").as_object().empty() ? "-" : "+";
  }
  return out;
}

TEST(ContextEdits, RemovesReasoningOfEarlierTurns) {
  const auto thinking = [](const char* keep) { return left(R"({"type": "clear_thinking_20251015")" + std::string(keep) + "}").thoughts; };
  EXPECT_EQ(left("").thoughts, "t1t2t3t4");
  EXPECT_EQ(thinking(""), "t4") << "one turn is the default";
  EXPECT_EQ(thinking(R"(, "keep": {"type": "thinking_turns", "value": 2})"), "t1t2t3t4") << "tool results do not end a turn";
  EXPECT_EQ(thinking(R"(, "keep": "all")"), "t1t2t3t4");
}

TEST(ContextEdits, RemovesResultsOfEarlierCalls) {
  const auto uses = [](const std::string& more, std::size_t num_tokens = 1000) {
    return left(R"({"type": "clear_tool_uses_20250919", "keep": {"type": "tool_uses", "value": 1}, )" + more + "}", num_tokens);
  };
  const std::string at_100 = R"("trigger": {"type": "input_tokens", "value": 100})",
                    at_2 = R"("trigger": {"type": "tool_uses", "value": 2})";
  const Left whole{"t1t2t3t4", "+++", "+++"}, last_one{"t1t2t3t4", "--+", "+++"};
  EXPECT_EQ(uses(at_100), last_one);
  EXPECT_EQ(uses(at_100, 100), whole) << "the prompt does not exceed the trigger";
  EXPECT_EQ(uses(at_2), last_one);
  EXPECT_EQ(uses(R"("trigger": {"type": "tool_uses", "value": 3})"), whole);
  EXPECT_EQ(uses(at_100 + R"(, "clear_at_least": {"type": "input_tokens", "value": 20})"), last_one);
  EXPECT_EQ(uses(at_100 + R"(, "clear_at_least": {"type": "input_tokens", "value": 21})"), whole);
  EXPECT_EQ(uses(at_2 + R"(, "clear_at_least": {"type": "input_tokens", "value": 21})"), whole);
  EXPECT_EQ(uses(at_100 + R"(, "exclude_tools": ["f"])"), whole) << "the one call of g is kept";
  EXPECT_EQ(uses(at_100 + R"(, "exclude_tools": ["g"])"), (Left{"t1t2t3t4", "-++", "+++"}));
  EXPECT_EQ(uses(at_100 + R"(, "clear_tool_inputs": true)"), (Left{"t1t2t3t4", "--+", "--+"}));
  EXPECT_EQ(uses(at_100 + R"(, "clear_tool_inputs": ["g"])"), (Left{"t1t2t3t4", "--+", "+-+"}));
}

TEST(ContextEdits, DoesNotCountTokensOfAShortConversation) {
  json::value management = json::parse(R"({"edits": [{"type": "clear_tool_uses_20250919"}]})");
  json::object body;
  ObjectReader reader(body);
  json::object chat = json::parse(kChat).as_object();
  const auto never = [](const json::object&) -> Result<std::size_t> { return fail(ErrorCode::io, "", "counted", ""); };
  EXPECT_TRUE(apply_context_edits(read_context_edits(reader, management), chat, never).has_value());
  EXPECT_EQ(chat, json::parse(kChat).as_object());
}

TEST(MessagesEdits, HaveTheValuesOfTheBody) {
  const auto edits_of = [](const std::string& edit) {
    std::vector<std::string> ignored;
    auto chat = chat_of_messages(
        parse_object("{" + kModelAndLimit + kUserTurn + R"(,"context_management":{"edits":[{"type":)" + edit + "}]}}").value(), {},
        ignored);
    EXPECT_TRUE(chat) << edit << chat.error().to_string();
    return chat->edits.at(0);
  };
  EXPECT_EQ(std::get<ClearThinking>(edits_of(R"("clear_thinking_20251015")")).keep, 1U);
  EXPECT_EQ(std::get<ClearThinking>(edits_of(R"("clear_thinking_20251015","keep":{"type":"thinking_turns","value":4})")).keep, 4U);
  EXPECT_FALSE(std::get<ClearThinking>(edits_of(R"("clear_thinking_20251015","keep":"all")")).keep);
  const auto plain = std::get<ClearToolUses>(edits_of(R"("clear_tool_uses_20250919")"));
  EXPECT_EQ(plain.trigger, 100'000U);
  EXPECT_FALSE(plain.counts_tools);
  EXPECT_EQ(plain.keep, 3U);
  EXPECT_EQ(plain.clear_at_least, 0U);
  EXPECT_FALSE(plain.clears_inputs);
  const auto full = std::get<ClearToolUses>(
      edits_of(R"("clear_tool_uses_20250919","trigger":{"type":"tool_uses","value":7},"keep":{"type":"tool_uses","value":2},
                  "clear_at_least":{"type":"input_tokens","value":9},"exclude_tools":["a",3,"b"],"clear_tool_inputs":["c"])"));
  EXPECT_EQ(full.trigger, 7U);
  EXPECT_TRUE(full.counts_tools);
  EXPECT_EQ(full.keep, 2U);
  EXPECT_EQ(full.clear_at_least, 9U);
  EXPECT_EQ(full.excluded, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(full.clears_inputs);
  EXPECT_EQ(full.inputs_of, std::vector<std::string>{"c"});
  const auto all = std::get<ClearToolUses>(
      edits_of(R"("clear_tool_uses_20250919","trigger":{"type":"input_tokens","value":1},"clear_tool_inputs":true)"));
  EXPECT_FALSE(all.counts_tools);
  EXPECT_TRUE(all.clears_inputs);
  EXPECT_TRUE(all.inputs_of.empty());
  EXPECT_FALSE(std::get<ClearToolUses>(edits_of(R"("clear_tool_uses_20250919","clear_tool_inputs":false)")).clears_inputs);
}

// A conversation with three calls: f(1) -> one, g(2) -> two, f(3) -> three.
json::object conversation_of_calls() {
  const auto call = [](const std::string& name, const std::string& id) {
    return R"({"role":"assistant","reasoning_content":"r)" + id + R"(","content":"","tool_calls":[{"id":")" + id +
           R"(","type":"function","function":{"name":")" + name + R"(","arguments":{"x":)" + id + R"(}}}]},)" +
           R"({"role":"tool","tool_call_id":")" + id + R"(","content":"result )" + id + R"("},)";
  };
  return json::parse(R"({"messages":[{"role":"user","content":"a"},)" + call("f", "1") + call("g", "2") +
                     R"({"role":"user","content":"with results"},{"role":"user","content":"b"},)" + call("f", "3") +
                     R"({"role":"user","content":"c"}]})")
      .as_object();
}

// Returns the results that are left, and after "/" the arguments that are left.
std::string left_of(const json::object& chat) {
  std::string results, arguments;
  for (const json::value& message : chat.at("messages").as_array()) {
    if (message.at("role") == "tool") results += message.at("content").as_string().starts_with("result") ? "r" : "-";
    if (message.as_object().contains("tool_calls"))
      arguments += message.at("tool_calls").as_array()[0].at("function").at("arguments").as_object().empty() ? "-" : "a";
  }
  return results + "/" + arguments;
}

TEST(ContextEdits, ClearOnlyTheCallsThatTheirRuleNames) {
  const auto edit = [](std::uint64_t trigger, bool counts_tools, std::uint64_t keep, std::uint64_t clear_at_least = 0) {
    ClearToolUses made;
    made.trigger = trigger;
    made.counts_tools = counts_tools;
    made.keep = keep;
    made.clear_at_least = clear_at_least;
    return made;
  };
  const auto excluding = [&](std::uint64_t keep, const std::string& name) {
    ClearToolUses made = edit(2, true, keep);
    made.excluded = {name};
    return made;
  };
  const auto clearing_inputs = [&](const std::vector<std::string>& names) {
    ClearToolUses made = edit(2, true, 1);
    made.clears_inputs = true;
    made.inputs_of = names;
    return made;
  };
  const std::pair<ClearToolUses, std::string> cases[] = {
      {edit(3, true, 0), "rrr/aaa"},
      {edit(2, true, 0), "---/aaa"},
      {edit(2, true, 1), "--r/aaa"},
      {edit(2, true, 3), "rrr/aaa"},
      {edit(2, true, 4), "rrr/aaa"},
      {excluding(0, "f"), "r-r/aaa"},
      {excluding(1, "g"), "-rr/aaa"},
      {clearing_inputs({}), "--r/--a"},
      {clearing_inputs({"g"}), "--r/a-a"},
      // The test's count is 100 for each result that is left.
      {edit(299, false, 0), "---/aaa"},
      {edit(300, false, 0), "rrr/aaa"},
      {edit(299, false, 1, 200), "--r/aaa"},
      {edit(299, false, 1, 201), "rrr/aaa"},
      {edit(2, true, 1, 200), "--r/aaa"},
      {edit(2, true, 1, 201), "rrr/aaa"},
  };
  const auto count = [](const json::object& chat) -> Result<std::size_t> {
    const std::string left = left_of(chat).substr(0, 3);
    return 100 * static_cast<std::size_t>(std::ranges::count(left, 'r'));
  };
  for (std::size_t i = 0; i < std::size(cases); ++i) {
    json::object chat = conversation_of_calls();
    ASSERT_TRUE(apply_context_edits({cases[i].first}, chat, count));
    EXPECT_EQ(left_of(chat), cases[i].second) << i;
  }
  json::object chat = conversation_of_calls();
  ASSERT_TRUE(apply_context_edits({edit(2, true, 0)}, chat, count));
  EXPECT_EQ(chat.at("messages").as_array()[2].at("content"), "[Old tool result content cleared]");
  const auto failing = [](const json::object&) -> Result<std::size_t> { return fail(ErrorCode::invalid_argument, "a", "b"); };
  EXPECT_FALSE(apply_context_edits({edit(5, false, 0)}, chat, failing)) << "an edit without its count fails";
  EXPECT_TRUE(apply_context_edits({edit(100'000, false, 0)}, chat, failing)) << "a short chat is not counted";
  EXPECT_TRUE(apply_context_edits({edit(2, true, 0)}, chat, failing));
}

TEST(ContextEdits, KeepTheReasoningOfTheLastTurns) {
  const auto kept = [](std::optional<std::uint64_t> keep) {
    json::object chat = conversation_of_calls();
    const auto none = [](const json::object&) -> Result<std::size_t> { return 0; };
    EXPECT_TRUE(apply_context_edits({ClearThinking{.keep = keep}}, chat, none));
    std::string left;
    for (const json::value& message : chat.at("messages").as_array())
      if (message.at("role") == "assistant") left += message.as_object().contains("reasoning_content") ? "r" : "-";
    return left;
  };
  EXPECT_EQ(kept(std::nullopt), "rrr");
  EXPECT_EQ(kept(0), "---");
  EXPECT_EQ(kept(1), "--r");
  EXPECT_EQ(kept(2), "rrr") << "calls 1 and 2 are in one turn";
}

}  // namespace
}  // namespace quire
