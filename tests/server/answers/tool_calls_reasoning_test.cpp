// Tests the reasoning of chats over real sockets: where it ends, what may follow it, and how its tokens are counted.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "server/answers/tool_calls_fixture.h"

namespace quire {
namespace {

TEST_F(ToolCallsTest, SeparatesReasoningFromContent) {
  begin(kThinking, "<think>\n2 and 2\n</think>\n\nFour.");
  const auto message = first_choice(chat("").json()).at("message");
  EXPECT_EQ(message.at("reasoning_content"), "2 and 2");
  EXPECT_EQ(message.at("content"), "Four.");
  const Assembled all = assemble(stream_events(chat(R"("stream": true)").body));
  EXPECT_EQ(all.reasoning, "2 and 2");
  EXPECT_EQ(all.content, "Four.");
  EXPECT_EQ(all.finish, "stop");
  EXPECT_FALSE(first_choice(chat(R"("include_reasoning": false)").json()).at("message").as_object().contains("reasoning_content"));
}

TEST_F(ToolCallsTest, ContinuesReasoningThatThePromptOpens) {
  begin(kThinking, std::string("2 and 2\n</think>\n\n") + kCall);
  const auto answer = with_tools(R"("chat_template_kwargs": {"opened": true}, "tool_choice": "required")").json();
  EXPECT_EQ(first_choice(answer).at("message").at("reasoning_content"), "2 and 2");
  EXPECT_TRUE(first_choice(answer).at("message").at("content").is_null());
  EXPECT_EQ(first_choice(answer).at("message").at("tool_calls").as_array().size(), 1U);
  EXPECT_NE(engine.at(0).request.structured_output->text.find("thought[lazy]: TEXT \"</think>\""), std::string::npos);
}

TEST_F(ToolCallsTest, StructuredOutputBeginsAfterReasoning) {
  const char* const kForm = R"("response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "object", "x-guidance": 1}}})";
  begin(kThinking, "<think>\nhm\n</think>\n\n{}");
  const auto message = first_choice(chat(kForm).json()).at("message");
  EXPECT_EQ(message.at("reasoning_content"), "hm");
  EXPECT_EQ(message.at("content"), "{}");
  const auto first = engine.at(0).request.structured_output;
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->kind, StructuredOutput::Kind::lark);
  EXPECT_NE(first->text.find("start: (thought space)? form\n"), std::string::npos) << first->text;
  EXPECT_NE(first->text.find("form: %json {\"type\":\"object\"}\n"), std::string::npos) << first->text;
  EXPECT_EQ(chat(R"("structured_outputs": {"regex": "a/b\\/c"}, "chat_template_kwargs": {"opened": true})").status, 200U);
  const auto opened = engine.at(1).request.structured_output;
  ASSERT_TRUE(opened.has_value());
  EXPECT_NE(opened->text.find("start: thought space form\n"), std::string::npos) << opened->text;
  EXPECT_NE(opened->text.find("form: /a\\/b\\/c/\n"), std::string::npos) << opened->text;
}

TEST_F(ToolCallsTest, StructuredOutputBeginsAfterTheReasoningEndToken) {
  const TokenId end = engine.add_control_token("</think>");
  begin(kThinking, "x");
  EXPECT_EQ(chat(R"("guided_choice": ["a", "b"], "chat_template_kwargs": {"opened": true})").status, 200U);
  const auto form = engine.at(0).request.structured_output;
  ASSERT_TRUE(form.has_value());
  EXPECT_EQ(form->begin_after, std::vector<TokenId>{end});
  EXPECT_NE(form->text.find("form: %lark {\nstart: \"a\" | \"b\"\n}\n"), std::string::npos) << form->text;
}

TEST_F(ToolCallsTest, CountsAtMostTheOutputTokensAsReasoning) {
  begin(kThinking, "and so on");
  for (const int most : {1, 5, 9, 90}) {
    const auto usage = chat(fmt::format(R"("chat_template_kwargs": {{"opened": true}}, "max_tokens": {})", most)).json().at("usage");
    const std::int64_t thought = usage.at("completion_tokens_details").at("reasoning_tokens").as_int64();
    EXPECT_EQ(thought, std::min(most, 9)) << most;
    EXPECT_LE(thought, usage.at("completion_tokens").as_int64()) << most;
  }
}

TEST_F(ToolCallsTest, EffortReachesTheTemplate) {
  begin(kThinking, "x");
  EXPECT_EQ(chat(R"("reasoning_effort": "high")").status, 200U);
  EXPECT_EQ(tokens_to_bytes(engine.at(0).request.prompt), "<user>hi<assistant>high");
  EXPECT_EQ(chat(R"("reasoning_effort": "none")").status, 200U);
  EXPECT_EQ(tokens_to_bytes(engine.at(1).request.prompt), "<user>hi<assistant><think></think>none");
  EXPECT_EQ(error_field(R"("reasoning_effort": "huge")"), "reasoning_effort");
}

}  // namespace
}  // namespace quire
