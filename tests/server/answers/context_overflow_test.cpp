// Tests the errors that a client gets, over real sockets, when its request exceeds the context of 512 tokens. Tokens are bytes.
#include <fmt/format.h>

#include <string>

#include "server/running_server.h"

namespace quire {
namespace {

class OverflowHttp : public RunningServer {
 protected:
  void begin() {
    engine.answer_with("x");
    start();
  }
  void expect_openai(const ClientResponse& answer, const std::string& param, const std::string& numbers) {
    EXPECT_EQ(answer.status, 400U) << answer.body;
    const auto error = answer.json().at("error");
    EXPECT_EQ(error.at("code"), "context_length_exceeded") << answer.body;
    EXPECT_EQ(error.at("type"), "invalid_request_error");
    EXPECT_EQ(answer.error_param(), param) << answer.body;
    EXPECT_TRUE(answer.error_message().starts_with("This model's maximum context length is 512 tokens. However, you requested "))
        << answer.body;
    EXPECT_NE(answer.error_message().find(numbers), std::string::npos) << answer.body;
    EXPECT_NE(answer.error_message().find("--max-model-len"), std::string::npos);
  }
  static std::string long_text(std::size_t size) { return "\"" + std::string(size, 'w') + "\""; }
  static std::string long_chat(std::size_t size, const std::string& more = {}) {
    return R"({"messages": [{"role": "user", "content": )" + long_text(size) + "}]" + more + "}";
  }
  // The number of bytes that the template adds to a chat of one message.
  static constexpr std::size_t kTemplateBytes = std::string_view("<user><assistant>").size();
};

TEST_F(OverflowHttp, ReportsCodeAndTokenCountsToOpenAiClients) {
  begin();
  expect_openai(post("/v1/completions", R"({"prompt": )" + long_text(512) + "}"), "prompt",
                "requested 528 tokens (512 in the messages, 16 in");
  expect_openai(post("/v1/completions", R"({"prompt": )" + long_text(700) + R"(, "max_tokens": 40})"), "prompt",
                "requested 740 tokens (700 in the messages, 40 in the completion)");
  expect_openai(post("/v1/completions", R"({"prompt": "abc", "max_tokens": 510})"), "max_tokens",
                "requested 513 tokens (3 in the messages, 510 in the completion)");
  std::string ids = "65";
  for (int i = 1; i < 600; ++i) ids += ",65";
  expect_openai(post("/v1/completions", R"({"prompt": [)" + ids + "]}"), "prompt", "requested 616 tokens (600 in the messages");
  expect_openai(post("/v1/chat/completions", long_chat(600)), "messages", fmt::format("({} in the messages, 1 in", 600 + kTemplateBytes));
  expect_openai(post("/v1/chat/completions", long_chat(100, R"(, "max_completion_tokens": 5000)")), "max_tokens",
                fmt::format("requested {} tokens ({} in the messages, 5000 in", 5100 + kTemplateBytes, 100 + kTemplateBytes));
  expect_openai(post("/v1/chat/completions", long_chat(600, R"(, "stream": true)")), "messages", "in the messages");
  expect_openai(post("/v1/responses", R"({"input": )" + long_text(600) + "}"), "input", "in the messages");
  expect_openai(post("/v1/responses", R"({"input": "a", "max_output_tokens": 512, "stream": true})"), "max_output_tokens",
                "512 in the completion");
  expect_openai(post("/v1/cache/probe", R"({"prompt": )" + long_text(600) + "}"), "prompt", "600 in the messages");
  EXPECT_EQ(post("/v1/completions", R"({"prompt": "abc", "max_tokens": 509})").status, 200U) << "the request fits exactly";
}

TEST_F(OverflowHttp, SaysAtLeastWhenTheTextIsNotFullyTokenized) {
  begin();
  for (const std::size_t size : {1025U, 5000U, 300000U})
    expect_openai(post("/v1/chat/completions", long_chat(size)), "messages", "requested at least ");
}

TEST_F(OverflowHttp, UsesAnthropicsMessagesForItsClients) {
  begin();
  const auto message_of = [](const ClientResponse& answer) {
    EXPECT_EQ(answer.status, 400U);
    EXPECT_EQ(answer.json().at("type"), "error");
    EXPECT_EQ(answer.json().at("error").at("type"), "invalid_request_error");
    return answer.error_message();
  };
  const std::string prompt = message_of(post("/v1/messages", long_chat(600, R"(, "model": "bytes", "max_tokens": 20)")));
  EXPECT_TRUE(prompt.starts_with(fmt::format("prompt is too long: {} tokens > 511 maximum", 600 + kTemplateBytes))) << prompt;
  EXPECT_NE(prompt.find("--max-model-len"), std::string::npos);
  const std::string uncounted = message_of(post("/v1/messages", long_chat(9000, R"(, "model": "bytes", "max_tokens": 20)")));
  EXPECT_TRUE(uncounted.starts_with("prompt is too long: ")) << uncounted;
  EXPECT_NE(uncounted.find(" tokens > 511 maximum, and only part of the prompt was counted"), std::string::npos) << uncounted;
  const std::string answer = message_of(post("/v1/messages", long_chat(100, R"(, "model": "bytes", "max_tokens": 500, "stream": true)")));
  EXPECT_TRUE(answer.starts_with(fmt::format("input length and `max_tokens` exceed context limit: {} + 500 > 512", 100 + kTemplateBytes)))
      << answer;
}

TEST_F(OverflowHttp, TokenCountRoutesAcceptTextsThatExceedTheContext) {
  begin();
  EXPECT_EQ(post("/v1/messages/count_tokens", long_chat(600, R"(, "model": "bytes")")).json().at("input_tokens"), 600 + kTemplateBytes);
  EXPECT_EQ(post("/v1/responses/input_tokens", R"({"input": )" + long_text(600) + "}").json().at("input_tokens"), 600 + kTemplateBytes);
}

}  // namespace
}  // namespace quire
