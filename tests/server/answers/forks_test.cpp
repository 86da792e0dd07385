// Tests POST /v1/requests/{id}/fork over real sockets, with an engine that the test drives by hand.
#include <string>

#include "server/running_server.h"

namespace quire {
namespace {

using ForkTest = RunningServer;

constexpr const char* kId = "X-Request-Id: mine\r\n";

TEST_F(ForkTest, LimitsMaxTokensOfAChild) {
  start({.generation_defaults = {.max_limit = 5}});
  HttpClient parent(port), child(port);
  parent.send(HttpClient::post_text("/v1/completions", R"({"prompt": "abc", "stream": true})", kId));
  ASSERT_TRUE(engine.wait_submitted(1));
  engine.emit(RequestId{0}, "on");
  child.send(HttpClient::post_text("/v1/requests/cmpl-mine/fork", R"({"max_tokens": 9})"));
  ASSERT_TRUE(engine.wait_submitted(2));
  EXPECT_EQ(engine.at(1).request.sampling.max_tokens, 5U);
  for (std::uint64_t i = 0; i < 2; ++i) engine.end(RequestId{i}, FinishReason::stop);
  EXPECT_EQ(child.receive().status, 200U);
}

TEST_F(ForkTest, ChildrenRepeatTheParentsOutputAndContinue) {
  start();
  HttpClient parent(port);
  parent.send(HttpClient::post_text("/v1/completions", R"({"prompt": "abc", "stream": true, "seed": 3, "stop": "!"})", kId));
  ASSERT_TRUE(engine.wait_submitted(1));
  engine.emit(RequestId{0}, "on");
  HttpClient child(port);
  child.send(HttpClient::post_text("/v1/requests/cmpl-mine/fork", R"({"n": 2, "seed": 7, "max_tokens": 9})"));
  ASSERT_TRUE(engine.wait_submitted(3));
  for (std::uint64_t i = 1; i < 3; ++i) {
    EXPECT_EQ(engine.at(i).request.sampling.seed, 6 + i);
    EXPECT_EQ(engine.at(i).request.sampling.max_tokens, 9U);
    engine.emit(RequestId{i}, "on");
    engine.emit(RequestId{i}, i == 1 ? "e!two" : "ce");
    engine.end(RequestId{i}, FinishReason::stop);
  }
  const auto answer = child.receive().json();
  EXPECT_EQ(answer.at("object"), "text_completion");
  EXPECT_TRUE(std::string(answer.at("id").as_string()).starts_with("cmpl-"));
  EXPECT_NE(answer.at("id"), "cmpl-mine");
  ASSERT_EQ(answer.at("choices").as_array().size(), 2U);
  EXPECT_EQ(answer.at("choices").as_array()[0].at("text"), "one") << "the child must not inherit stop strings";
  EXPECT_EQ(answer.at("choices").as_array()[1].at("text"), "once");
  EXPECT_EQ(answer.at("usage").at("prompt_tokens"), 3);
  engine.end(RequestId{0}, FinishReason::stop);
  EXPECT_TRUE(stream_events(parent.receive().body).front().at("id").as_string().starts_with("cmpl-mine-"));
}

TEST_F(ForkTest, StreamsAChildOnRequest) {
  start();
  HttpClient parent(port), child(port);
  parent.send(HttpClient::post_text("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "a"}]})", kId));
  ASSERT_TRUE(engine.wait_submitted(1));
  child.send(HttpClient::post_text("/v1/requests/chatcmpl-mine/fork", R"({"stream": true})"));
  ASSERT_TRUE(engine.wait_submitted(2));
  engine.emit(RequestId{1}, "x");
  engine.end(RequestId{1}, FinishReason::stop);
  const auto events = stream_events(child.receive().body);
  EXPECT_EQ(events[0].at("object"), "chat.completion.chunk");
  engine.end(RequestId{0}, FinishReason::stop);
  EXPECT_EQ(parent.receive().status, 200U);
}

TEST_F(ForkTest, ForksAChildAgain) {
  start();
  HttpClient parent(port), child(port), grandchild(port);
  parent.send(HttpClient::post_text("/v1/completions", R"({"prompt": "abc"})", kId));
  ASSERT_TRUE(engine.wait_submitted(1));
  child.send(HttpClient::post_text("/v1/requests/cmpl-mine/fork", "{}", "X-Request-Id: second\r\n"));
  ASSERT_TRUE(engine.wait_submitted(2));
  grandchild.send(HttpClient::post_text("/v1/requests/cmpl-second/fork", "{}"));
  ASSERT_TRUE(engine.wait_submitted(3));
  for (std::uint64_t i = 0; i < 3; ++i) engine.end(RequestId{i}, FinishReason::stop);
  EXPECT_EQ(grandchild.receive().status, 200U);
}

// The engine reports asynchronously that a fork is impossible, and which side caused it.
TEST_F(ForkTest, ReturnsAClientErrorWhenTheEngineRefusesAChild) {
  start();
  HttpClient parent(port);
  parent.send(HttpClient::post_text("/v1/completions", R"({"prompt": "abc", "stream": true})", kId));
  ASSERT_TRUE(engine.wait_submitted(1));
  std::size_t num_submitted = 1;
  for (const auto& [error, status] :
       {std::pair(Error{ErrorCode::invalid_argument, "max_tokens", "is 3, but the fork already has 5 output tokens", ""}, 400U),
        std::pair(Error{ErrorCode::not_found, "parent", "the request has ended", ""}, 404U),
        std::pair(Error{ErrorCode::overloaded, "n", "4 are open", ""}, 429U)}) {
    for (const char* body : {R"({"max_tokens": 3})", R"({"max_tokens": 3, "stream": true})"}) {
      HttpClient child(port);
      child.send(HttpClient::post_text("/v1/requests/cmpl-mine/fork", body));
      ASSERT_TRUE(engine.wait_submitted(++num_submitted));
      engine.refuse(RequestId{num_submitted - 1}, error);
      const auto refused = child.receive();
      EXPECT_EQ(refused.status, status) << body;
      EXPECT_EQ(refused.error_param(), error.field) << body;
    }
  }
  engine.end(RequestId{0}, FinishReason::stop);
}

TEST_F(ForkTest, RefusesRequestsThatCannotBeForked) {
  start({.max_choices = 4});
  EXPECT_EQ(post("/v1/requests/cmpl-mine/fork", "{}").status, 404U) << "the request is unknown";
  EXPECT_EQ(post("/v1/requests//fork", "{}").status, 404U);
  EXPECT_EQ(post("/v1/requests/a/b/fork", "{}").status, 404U);
  HttpClient parent(port);
  parent.send(HttpClient::post_text("/v1/completions", R"({"prompt": "abc", "n": 2})", kId));
  ASSERT_TRUE(engine.wait_submitted(2));
  EXPECT_EQ(post("/v1/requests/cmpl-mine/fork", R"({"n": 5})").error_param(), "n");
  EXPECT_EQ(post("/v1/requests/cmpl-mine/fork", R"({"choice": 2})").error_param(), "choice");
  EXPECT_EQ(post("/v1/requests/cmpl-mine/fork", R"({"temperature": 1})").error_param(), "temperature");
  engine.end(RequestId{1}, FinishReason::stop);
  EXPECT_EQ(HttpClient(port).get("/v1/requests/cmpl-mine/fork").status, 405U);
  engine.end(RequestId{0}, FinishReason::stop);
  EXPECT_EQ(parent.receive().status, 200U);
  EXPECT_EQ(post("/v1/requests/cmpl-mine/fork", "{}").status, 404U) << "the request is finished";
  EXPECT_EQ(engine.num_submitted(), 2U);
}

TEST_F(ForkTest, RequiresTheApiKey) {
  start({.api_key = "secret"});
  EXPECT_EQ(post("/v1/requests/cmpl-mine/fork", "{}").status, 401U);
}

}  // namespace
}  // namespace quire
