// Tests log probabilities of prompt tokens, and echoes with log probabilities, over real sockets.
#include <string>

#include "server/running_server.h"

namespace quire {
namespace {

using PromptLogprobsHttp = RunningServer;

boost::json::value first_choice(const ClientResponse& response) {
  EXPECT_EQ(response.status, 200U) << response.body;
  return response.json().at("choices").as_array()[0];
}

TEST_F(PromptLogprobsHttp, AppearInCompletionChoicesInVllmsFormat) {
  engine.answer_with("x");
  start();
  const auto choice = first_choice(post("/v1/completions", R"({"prompt": "abc", "prompt_logprobs": 1})"));
  const auto& prompt = choice.at("prompt_logprobs").as_array();
  ASSERT_EQ(prompt.size(), 3U);
  EXPECT_TRUE(prompt[0].is_null());
  const auto& entry = prompt[1].as_object();
  ASSERT_EQ(entry.size(), 2U);
  EXPECT_EQ(entry.begin()->key(), std::to_string('b')) << "the prompt token is the first entry";
  EXPECT_EQ(entry.at(std::to_string('b')).at("logprob"), -0.5);
  EXPECT_EQ(entry.at(std::to_string('b')).at("rank"), 1);
  EXPECT_EQ(entry.at(std::to_string('b')).at("decoded_token"), "b");
  EXPECT_EQ(entry.at(std::to_string('c')).at("rank"), 2);
  EXPECT_TRUE(choice.at("logprobs").is_null());
  EXPECT_EQ(choice.at("text"), "x");
}

TEST_F(PromptLogprobsHttp, AreAbsentUnlessRequested) {
  engine.answer_with("x");
  start();
  EXPECT_FALSE(first_choice(post("/v1/completions", R"({"prompt": "abc"})")).as_object().contains("prompt_logprobs"));
  EXPECT_FALSE(
      first_choice(post("/v1/completions", R"({"prompt": "abc", "echo": true, "logprobs": 1})")).as_object().contains("prompt_logprobs"));
  EXPECT_EQ(first_choice(post("/v1/completions", R"({"prompt": "a", "prompt_logprobs": 0})")).at("prompt_logprobs").as_array().size(), 1U);
}

TEST_F(PromptLogprobsHttp, AppearOnceAtTheTopLevelOfAChat) {
  engine.answer_with("x");
  start();
  const auto answer =
      post("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "a"}], "n": 2, "prompt_logprobs": 0})").json();
  EXPECT_EQ(answer.at("prompt_logprobs").as_array().size(), engine.at(0).request.prompt.size());
  EXPECT_FALSE(answer.at("choices").as_array()[0].as_object().contains("prompt_logprobs"));
}

TEST_F(PromptLogprobsHttp, AreWrittenOnceWhenTheTokenIsAmongTheTopTokens) {
  start();
  HttpClient client(port);
  client.send(HttpClient::post_text("/v1/completions", R"({"prompt": "ab", "prompt_logprobs": 2, "echo": true, "logprobs": 1})"));
  ASSERT_TRUE(engine.wait_submitted(1));
  RequestOutput output = last_output_of(RequestId{0}, {'z'}, FinishReason::length);
  output.logprobs.push_back({{{'z', -0.25F, 1}, {'z', -0.25F, 1}}});
  output.prompt_logprobs = std::make_shared<const std::vector<PositionLogprobs>>(
      std::vector<PositionLogprobs>{{{{'b', -2.0F, 2}, {'q', -1.0F, 1}, {'b', -2.0F, 2}}}});
  engine.deliver(std::move(output));
  const auto choice = first_choice(client.receive());
  const auto& entry = choice.at("prompt_logprobs").as_array()[1].as_object();
  ASSERT_EQ(entry.size(), 2U);
  EXPECT_EQ(entry.begin()->key(), std::to_string('b'));
  EXPECT_EQ(entry.at(std::to_string('q')).at("rank"), 1);
  EXPECT_EQ(choice.at("logprobs").at("top_logprobs").as_array()[1].as_object().size(), 2U);
}

TEST_F(PromptLogprobsHttp, EchoListsPromptLogprobsFirstBeginningWithNull) {
  engine.answer_with("de");
  start();
  const auto choice = first_choice(post("/v1/completions", R"({"prompt": "abc", "echo": true, "logprobs": 1, "max_tokens": 2})"));
  EXPECT_EQ(choice.at("text"), "abcde");
  const auto& logprobs = choice.at("logprobs");
  EXPECT_EQ(logprobs.at("tokens"), (boost::json::array{"a", "b", "c", "d", "e"}));
  EXPECT_EQ(logprobs.at("token_logprobs"), (boost::json::array{nullptr, -0.5, -0.5, -0.5, -0.5}));
  EXPECT_EQ(logprobs.at("text_offset"), (boost::json::array{0, 1, 2, 3, 4}));
  const auto& tops = logprobs.at("top_logprobs").as_array();
  ASSERT_EQ(tops.size(), 5U);
  EXPECT_TRUE(tops[0].is_null());
  EXPECT_EQ(tops[1].at("c"), -1.5);
}

TEST_F(PromptLogprobsHttp, StreamedEchoSendsThemInTheFirstEvent) {
  engine.answer_with("de");
  start();
  const auto events = stream_events(
      post("/v1/completions", R"({"prompt": "abc", "echo": true, "logprobs": 0, "max_tokens": 2, "n": 2, "stream": true})").body);
  std::string tokens[2];
  std::size_t nulls = 0, offsets[2] = {0, 0};
  for (const auto& event : events) {
    for (const auto& choice : event.at("choices").as_array()) {
      const auto index = static_cast<std::size_t>(choice.at("index").as_int64());
      const auto& logprobs = choice.at("logprobs");
      for (const auto& token : logprobs.at("tokens").as_array()) tokens[index] += token.as_string();
      for (const auto& value : logprobs.at("token_logprobs").as_array()) nulls += value.is_null() ? 1 : 0;
      for (const auto& offset : logprobs.at("text_offset").as_array()) EXPECT_EQ(offset, offsets[index]++);
    }
  }
  EXPECT_EQ(tokens[0], "abcde");
  EXPECT_EQ(tokens[1], "abcde");
  EXPECT_EQ(nulls, 2U);
}

TEST_F(PromptLogprobsHttp, EchoWithoutNewTokensReturnsOnlyThePrompt) {
  engine.answer_with("xyz");
  start();
  const auto choice = first_choice(post("/v1/completions", R"({"prompt": "abc", "echo": true, "logprobs": 0, "max_tokens": 0})"));
  EXPECT_EQ(choice.at("text"), "abc");
  EXPECT_EQ(choice.at("finish_reason"), "length");
  EXPECT_EQ(choice.at("logprobs").at("token_logprobs"), (boost::json::array{nullptr, -0.5, -0.5}));
  EXPECT_EQ(first_choice(post("/v1/completions", R"({"prompt": "abc", "echo": true, "max_tokens": 0})")).at("text"), "abc");
  const auto events = stream_events(post("/v1/completions", R"({"prompt": "abc", "echo": true, "max_tokens": 0, "stream": true})").body);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].at("choices").as_array()[0].at("text"), "abc");
}

// Their memory grows with the prompt length, the number of alternatives and the number of choices.
TEST_F(PromptLogprobsHttp, RefusesRequestsOverTheMemoryBound) {
  engine.answer_with("x");
  start({.max_prompt_logprobs = 60});
  const std::string prompt = R"({"prompt": "0123456789", "temperature": 1, )";
  EXPECT_EQ(post("/v1/completions", prompt + R"("prompt_logprobs": 5})").status, 200U);
  EXPECT_EQ(post("/v1/completions", prompt + R"("prompt_logprobs": 6})").error_param(), "prompt_logprobs");
  EXPECT_EQ(post("/v1/completions", prompt + R"("prompt_logprobs": 1, "n": 4})").error_param(), "prompt_logprobs");
  EXPECT_EQ(post("/v1/completions", prompt + R"("logprobs": 5, "echo": true})").status, 200U);
  EXPECT_EQ(post("/v1/completions", prompt + R"("logprobs": 6, "echo": true})").error_param(), "echo");
  EXPECT_EQ(post("/v1/completions", R"({"prompt": ["0123456789", "0123456789"], "prompt_logprobs": 3})").error_param(), "prompt_logprobs");
  const std::string chat = R"({"messages": [{"role": "user", "content": "abc"}], "prompt_logprobs": 1, "n": 8})";
  EXPECT_EQ(post("/v1/chat/completions", chat).status, 200U) << "a chat has them once for all choices";
}

TEST_F(PromptLogprobsHttp, ForwardsTheEnginesRefusal) {
  engine.refuse_with(Error{ErrorCode::unsupported, "prompt_logprobs", "are not supported by this engine's worker", "leave it out"});
  start();
  const auto refused = post("/v1/completions", R"({"prompt": "abc", "prompt_logprobs": 1})");
  EXPECT_EQ(refused.status, 400U);
  EXPECT_EQ(refused.error_param(), "prompt_logprobs");
}

}  // namespace
}  // namespace quire
