// Tests which parts of a conversation context_management removes and keeps.
#include "server/api/anthropic/context_edits.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <string>
#include <utility>

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

}  // namespace
}  // namespace quire
