// Tests the errors of the messages and fields of a chat, and how templates get the messages.
#include <gtest/gtest.h>

#include <boost/json/serialize.hpp>
#include <string>

#include "server/request/completion_request.h"
#include "server/request/request_bodies.h"

namespace quire {
namespace {

TEST(ChatErrors, NameTheFieldTheProblemAndTheFix) {
  const BodyCase cases[] = {
      {"", R"(messages: is missing; send [{"role": "user", "content": "..."}])"},
      {R"("messages": [])", R"(messages: must be an array with at least one message; send [{"role": "user", "content": "..."}])"},
      {R"("messages": {})", R"(messages: must be an array with at least one message; send [{"role": "user", "content": "..."}])"},
      {R"("messages": [1])", "messages[0]: must be an object, not integer 1"},
      {R"("messages": [{"content": "a"}])", "messages[0].role: must be a string; use system, user, assistant or tool"},
      {R"("messages": [{"role": "user", "content": null}])", "messages[0].content: is missing; send a string"},
      {R"("messages": [{"role": "user", "content": 5}])", "messages[0].content: must be a string or an array of parts, not integer 5"},
      {R"("messages": [{"role": "user", "content": ["a"]}])",
       R"(messages[0].content[0]: must be an object with a type; send {"type": "text", "text": ...})"},
      {R"("messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": 3}]}])",
       R"(messages[0].content[1]: must be an object with a type; send {"type": "text", "text": ...})"},
      {R"("messages": [{"role": "user", "content": [{"type": "audio"}]}])",
       R"(messages[0].content[0]: has type string "audio"; send text parts: this model supports text only)"},
      {R"("messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}])", "messages[0].content[0].text: must be a string"},
      {R"("messages": [{"role": "assistant", "content": [{"type": "refusal"}]}])", "messages[0].content[0].refusal: must be a string"},
      {R"("messages": [{"role": "assistant", "tool_calls": 1}])", "messages[0].tool_calls: must be an array"},
      {R"("messages": [{"role": "assistant", "tool_calls": [1]}])", "messages[0].tool_calls: must contain objects with a function"},
      {R"("messages": [{"role": "assistant", "tool_calls": [{"function": 1}]}])",
       "messages[0].tool_calls: must contain objects with a function"},
      {R"("messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": "[1]"}}]}])",
       "messages[0].tool_calls: function.arguments must be an object, not array; send the text of a JSON object"},
      {R"("messages": [{"role": "tool", "content": "a"}])",
       "messages[0].role: is a tool result without a tool call; send the assistant message with its tool_calls before the results"},
      {R"("messages": [{"role": "tool", "tool_call_id": "1", "content": "a"}])",
       R"(messages[0].tool_call_id: string "1" is not the id of an earlier tool call; send the assistant message with its tool_calls )"
       "before the results"},
      {kHiMessage + R"(, "continue_final_message": true)",
       R"(continue_final_message: cannot be combined with add_generation_prompt; send "add_generation_prompt": false as well)"},
      {kHiMessage + R"(, "chat_template_kwargs": 3)", "chat_template_kwargs: must be an object, not integer 3"},
      {kHiMessage + R"(, "reasoning_effort": "much")",
       R"(reasoning_effort: is "much"; use one of none, minimal, low, medium, high, xhigh, max)"},
      {kHiMessage + R"(, "max_tokens": 0)", "max_tokens: is 0; use 1 to 2147483647"},
      {kHiMessage + R"(, "max_completion_tokens": 0)", "max_completion_tokens: is 0; use 1 to 2147483647"},
      {kHiMessage + R"(, "max_tokens": 2, "max_completion_tokens": 3)",
       "max_completion_tokens: differs from max_tokens; send only one of them"},
      {kHiMessage + R"(, "top_logprobs": 1)", R"(top_logprobs: requires logprobs; send "logprobs": true as well)"},
      {kHiMessage + R"(, "logprobs": true, "top_logprobs": 21)", "top_logprobs: is 21; use 0 to 20"},
      {kHiMessage + R"(, "thinking": 3)",
       R"(thinking: is integer 3 without a known type; send {"type": "enabled"} or {"type": "disabled"})"},
      {kHiMessage + R"(, "thinking": {"type": "often"})",
       R"(thinking: is object without a known type; send {"type": "enabled"} or {"type": "disabled"})"},
      {kHiMessage + R"(, "reasoning": 3)", R"(reasoning: must be an object, not integer 3; send {"effort": "low"})"},
      {kHiMessage + R"(, "reasoning": {"max_tokens": 5})",
       "reasoning.max_tokens: is not supported by this server, except as null; send max_tokens, which limits reasoning and answer "
       "together"},
      {kHiMessage + R"(, "typical_p": 0.5)",
       "typical_p: is number 5E-1, which this endpoint does not support; send min_p, top_p or top_k instead; 1 is accepted and has no "
       "effect"},
      {kHiMessage + R"(, "prompt_embeds": "x")",
       R"(prompt_embeds: is string "x", which this endpoint does not support; send text or token ids as prompt)"},
      {kHiMessage + R"(, "mm_processor_kwargs": {"a": 1})",
       "mm_processor_kwargs: is object, which this endpoint does not support; leave it out"},
      {kHiMessage + R"(, "max_new_tokens": 4, "max_tokens": 5)",
       "max_new_tokens: conflicts with max_tokens, which means the same; send only one of them"},
      {kHiMessage + R"(, "temprature": 1)", "temprature: is not a field of this request; did you mean 'temperature'?"},
  };
  for (const BodyCase& one : cases) EXPECT_EQ(request_error(chat_request(one.fields)), one.error) << one.fields;
}

TEST(ChatMessages, BecomeWhatTemplatesExpect) {
  const auto messages = [](const std::string& list) {
    auto request = chat_request(R"("messages": )" + list);
    EXPECT_TRUE(request) << list << request.error().to_string();
    return boost::json::serialize(request->chat.messages);
  };
  EXPECT_EQ(messages(R"([{"role": "assistant", "reasoning": "r", "content": null}])"),
            R"([{"role":"assistant","reasoning":null,"content":"","reasoning_content":"r"}])");
  EXPECT_EQ(messages(R"([{"role": "assistant", "reasoning": "r", "reasoning_content": "c", "content": "a"}])"),
            R"([{"role":"assistant","reasoning":"r","reasoning_content":"c","content":"a"}])");
  EXPECT_EQ(messages(R"([{"role": "assistant", "tool_calls": [], "content": "a", "name": null}])"),
            R"([{"role":"assistant","content":"a"}])");
  EXPECT_EQ(messages(R"([{"role": "user", "content": []}])"), R"([{"role":"user","content":""}])");
  const auto arguments = [&](const std::string& text) {
    const auto request =
        chat_request(R"("messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": )" + text + "}}]}]");
    EXPECT_TRUE(request) << text;
    return boost::json::serialize(request->chat.messages[0].at("tool_calls").as_array()[0].at("function").at("arguments"));
  };
  EXPECT_EQ(arguments(R"("{\"a\": 1}")"), R"({"a":1})");
  EXPECT_EQ(arguments(R"({"a": 1})"), R"({"a":1})");
  EXPECT_EQ(arguments(R"("")"), "{}");
  EXPECT_EQ(arguments("null"), "{}");
  EXPECT_EQ(arguments(R"("ls -l")"), R"({"raw_arguments":"ls -l"})");
  EXPECT_EQ(arguments(R"("{\"a\": \"b")"), R"({"a":"b"})") << "an answer that was cut off";
  const auto content = [&](const std::string& parts, bool needs_parts) {
    RequestLimits limits = kBodyLimits;
    limits.image_reading.parts = needs_parts;
    const auto request = parse_completion_request(Api::chat, R"({"messages": [{"role": "user", "content": [)" + parts + "]}]}", limits);
    EXPECT_TRUE(request) << parts;
    return boost::json::serialize(request->chat.messages[0].at("content"));
  };
  const std::string one = R"({"type":"text","text":"a"})", two = one + R"(,{"type":"text","text":"b"})";
  EXPECT_EQ(content(one, true), "\"a\"") << "a single text is no list";
  EXPECT_EQ(content(two, true), "[" + two + "]");
  EXPECT_EQ(content(two, false), R"("a\nb")");
  const auto tool_result = [](const std::string& call, const std::string& result) {
    return request_error(chat_request(R"("messages": [{"role": "assistant", "tool_calls": [{)" + call +
                                      R"("function": {"name": "f"}}]}, {"role": "tool", )" + result + R"("content": "a"}])"));
  };
  EXPECT_EQ(tool_result(R"("id": "1", )", R"("tool_call_id": "1", )"), "accepted");
  EXPECT_EQ(tool_result(R"("id": "1", )", ""), "accepted") << "ids are optional";
  EXPECT_EQ(tool_result("", R"("tool_call_id": "1", )"), "accepted");
  EXPECT_TRUE(tool_result(R"("id": "1", )", R"("tool_call_id": "2", )").starts_with("messages[1].tool_call_id: string \"2\" is not"));
}

}  // namespace
}  // namespace quire
