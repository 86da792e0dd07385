#include "text/tool_calls/tool_prompt.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <string>

namespace quire {
namespace {

boost::json::array array_of(std::string_view text) {
  return boost::json::parse(text).as_array();
}

const char* const kTools = R"([{"type": "function", "function": {"name": "clock"}}])";
const char* const kConversation = R"([{"role": "user", "content": "time?"},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "call_0123456789", "type": "function",
                                                         "function": {"name": "clock", "arguments": {"zone": "é", "n": [1, null]}}}]},
    {"role": "tool", "tool_call_id": "call_0123456789", "content": "12:00"}])";

TEST(ToolPrompt, DescribesToolsInASystemMessageForPlainTemplates) {
  const CallFormat plain = detect_call_format("{{ messages }}");
  boost::json::array messages = array_of(kConversation);
  adapt_messages(plain, array_of(kTools), messages);
  ASSERT_EQ(messages.size(), 4U);
  EXPECT_EQ(messages[0].at("role"), "system");
  const std::string system_text(messages[0].at("content").as_string());
  EXPECT_NE(system_text.find(R"({"type": "function", "function": {"name": "clock"}})"), std::string::npos);
  EXPECT_NE(system_text.find(R"({"name": "function_name", "arguments": {"argument": "value"}})"), std::string::npos);
  EXPECT_EQ(messages[2].at("content"), R"({"name": "clock", "arguments": {"zone": "é", "n": [1, null]}})");
  EXPECT_FALSE(messages[2].as_object().contains("tool_calls"));
  EXPECT_EQ(messages[3].at("role"), "user");
  EXPECT_EQ(messages[3].at("content"), "<tool_response>\n12:00\n</tool_response>");
}

TEST(ToolPrompt, SplitsCallsIntoMessagesWithTheirResultsForGptOss) {
  const CallFormat format = detect_call_format("<|channel|><|message|> tools tool_calls tool");
  boost::json::array messages = array_of(R"([{"role": "user", "content": "?"},
      {"role": "assistant", "content": null, "reasoning_content": "two of them",
       "tool_calls": [{"id": "a", "function": {"name": "f"}}, {"id": "b", "function": {"name": "g"}}]},
      {"role": "tool", "tool_call_id": "b", "content": "2"}, {"role": "tool", "tool_call_id": "a", "content": "1"},
      {"role": "assistant", "content": "done"}])");
  adapt_messages(format, array_of(kTools), messages);
  EXPECT_EQ(boost::json::serialize(messages), boost::json::serialize(array_of(R"([{"role": "user", "content": "?"},
      {"role": "assistant", "reasoning_content": "two of them", "tool_calls": [{"id": "a", "function": {"name": "f"}}], "thinking": "two of them"},
      {"role": "tool", "tool_call_id": "a", "content": "1"},
      {"role": "assistant", "tool_calls": [{"id": "b", "function": {"name": "g"}}]},
      {"role": "tool", "tool_call_id": "b", "content": "2"}, {"role": "assistant", "content": "done"}])")));
}

TEST(ToolPrompt, KeepsTheSystemMessage) {
  boost::json::array messages = array_of(R"([{"role": "system", "content": "Be terse."}, {"role": "user", "content": "x"}])");
  adapt_messages(CallFormat{}, array_of(kTools), messages);
  ASSERT_EQ(messages.size(), 2U);
  EXPECT_TRUE(messages[0].at("content").as_string().starts_with("Be terse.\n\nYou may call"));
}

TEST(ToolPrompt, DoesNotChangeMessagesForTemplatesWithTools) {
  const CallFormat format = detect_call_format("tools tool_calls tool <tool_call> \"arguments\"");
  boost::json::array messages = array_of(kConversation);
  adapt_messages(format, array_of(kTools), messages);
  EXPECT_EQ(messages, array_of(kConversation));
}

TEST(ToolPrompt, ShortensIdsToNineLettersAndDigits) {
  const CallFormat mistral = detect_call_format("tools tool_calls tool [TOOL_CALLS] length != 9");
  boost::json::array messages = array_of(kConversation);
  adapt_messages(mistral, array_of(kTools), messages);
  const auto& id = messages[1].at("tool_calls").as_array()[0].at("id").as_string();
  EXPECT_EQ(id.size(), 9U);
  EXPECT_EQ(messages[2].at("tool_call_id"), id);
  boost::json::array again = array_of(R"([{"role": "tool", "tool_call_id": "abcDEF123", "content": ""}])");
  adapt_messages(mistral, nullptr, again);
  EXPECT_EQ(again[0].at("tool_call_id"), "abcDEF123");
}

TEST(ToolPrompt, PassesArgumentsAsTextToTemplatesThatConcatenateThem) {
  const CallFormat r1 = detect_call_format("tools tool_calls tool <｜tool▁calls▁begin｜> + tool['function']['arguments'] + ```json");
  boost::json::array messages = array_of(kConversation);
  adapt_messages(r1, nullptr, messages);
  EXPECT_EQ(messages[1].at("tool_calls").as_array()[0].at("function").at("arguments"), R"({"zone": "é", "n": [1, null]})");
}

TEST(ToolPrompt, WritesCallsInTheFormatOfTheModel) {
  const boost::json::array calls =
      array_of(R"([{"function": {"name": "f", "arguments": {"a": 1}}}, {"function": {"name": "g", "arguments": {}}}])");
  const auto written = [&](const char* chat_template) { return write_calls(detect_call_format(chat_template), calls); };
  EXPECT_EQ(written("<|tool_call|>"), R"(<|tool_call|>[{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}])");
  EXPECT_EQ(written("named SmolLM, trained by Hugging Face, Reasoning Mode"),
            "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": "
            "{}}\n</tool_call>");
  EXPECT_EQ(written("<|tool_list_start|>"), "<|tool_call_start|>[f(a=1), g()]<|tool_call_end|>");
  EXPECT_EQ(written("x"), R"([{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}])");
}

}  // namespace
}  // namespace quire
