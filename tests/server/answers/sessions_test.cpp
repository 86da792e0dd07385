// Tests streaming sessions over real sockets: one stream, with a prompt in parts.
#include <string>
#include <vector>

#include "server/running_server.h"

namespace quire {
namespace {

class SessionsHttp : public RunningServer {
 protected:
  // Opens the session on this client's stream and waits for the first answer.
  void open(HttpClient& client, const std::string& more = {}) {
    client.send_post("/v1/completions", R"({"prompt": "one", "session": true, "stream": true, "max_tokens": 9)" + more + "}",
                     "X-Request-Id: s\r\n");
    ASSERT_TRUE(engine.wait_submitted(1));
    EXPECT_TRUE(engine.at(0).request.session);
    engine.emit(engine.at(0).id, "first");
    engine.end_input(engine.at(0).id, " answer", FinishReason::length);
  }
  ClientResponse give(const std::string& body, const std::string& headers = {}) { return post("/v1/requests/cmpl-s/input", body, headers); }
  static std::size_t count(const std::string& text, const std::string& part) {
    std::size_t found = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
    return found;
  }
};

TEST_F(SessionsHttp, StreamsSuccessiveAnswersInOneStream) {
  start();
  HttpClient client(port);
  open(client, R"(, "stream_options": {"include_usage": true})");
  const auto given = give(R"({"prompt": "two"})");
  EXPECT_EQ(given.status, 200U) << given.body;
  EXPECT_EQ(given.json().at("num_tokens"), 3);
  ASSERT_TRUE(engine.wait_appended(0, 1));
  EXPECT_EQ(engine.at(0).inputs[0], bytes_to_tokens("two"));
  engine.end_input(engine.at(0).id, "second", FinishReason::stop);
  EXPECT_EQ(give(R"({"prompt": [65, 66], "end": true})").status, 200U);
  ASSERT_TRUE(engine.wait_appended(0, 3));
  EXPECT_EQ(engine.at(0).inputs[1], bytes_to_tokens("AB"));
  EXPECT_TRUE(engine.at(0).inputs[2].empty()) << "no more input follows";
  engine.end_input(engine.at(0).id, "third", FinishReason::length);
  engine.deliver(last_output_of(engine.at(0).id, {}, FinishReason::stop));
  const std::string body = client.receive().body;
  EXPECT_EQ(count(body, R"("finish_reason":"length")"), 2U);
  EXPECT_EQ(count(body, R"("finish_reason":"stop")"), 1U) << "only the second answer has it: the session itself ends with [DONE]";
  for (const char* text : {"first", " answer", "second", "third"}) EXPECT_EQ(count(body, text), 1U) << text;
  EXPECT_NE(body.find(R"("prompt_tokens":8)"), std::string::npos) << "all given input counts";
  EXPECT_TRUE(body.ends_with("data: [DONE]\n\n"));
}

TEST_F(SessionsHttp, ReadsSpecialTokensInAnInputAsInAPrompt) {
  start();
  HttpClient client(port);
  open(client);
  EXPECT_EQ(give(R"({"prompt": "a<|end|>b"})").json().at("num_tokens"), 3);
  ASSERT_TRUE(engine.wait_appended(0, 1));
  EXPECT_EQ(engine.at(0).inputs[0], (std::vector<TokenId>{'a', kFakeEos, 'b'}));
}

TEST_F(SessionsHttp, EndsASessionWithoutInputAfterTheTimeout) {
  start({.session_timeout_ms = 200});
  HttpClient client(port);
  open(client);
  const std::string body = client.receive().body;
  EXPECT_NE(body.find("session-timeout-ms"), std::string::npos) << body;
  EXPECT_TRUE(engine.wait_finished(0));
  EXPECT_EQ(engine.at(0).finished, FinishReason::abort);
  EXPECT_EQ(give(R"({"prompt": "two"})").status, 404U);
}

TEST_F(SessionsHttp, TimeoutDoesNotRunWhileAnAnswerIsInProgress) {
  start({.session_timeout_ms = 1000});
  HttpClient client(port);
  open(client);
  ASSERT_EQ(give(R"({"prompt": "two"})").status, 200U);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  engine.end_input(engine.at(0).id, "late", FinishReason::length);
  EXPECT_NE(client.receive().body.find("late"), std::string::npos);
}

TEST_F(SessionsHttp, AbortsTheSessionWhenTheClientDisconnects) {
  start();
  {
    HttpClient client(port);
    open(client);
  }
  EXPECT_TRUE(engine.wait_finished(0));
}

TEST_F(SessionsHttp, NamesTheInvalidField) {
  start();
  const std::pair<const char*, const char*> cases[] = {
      {R"("session": true)", "session"},
      {R"("session": true, "stream": true, "n": 2)", "n"},
      {R"("session": true, "stream": true, "stop": "x")", "stop"},
      {R"("session": true, "stream": true, "echo": true)", "echo"},
      {R"("session": true, "stream": true, "max_tokens": 0)", "max_tokens"},
      {R"("session": "yes", "stream": true)", "session"},
  };
  for (const auto& [fields, field] : cases)
    EXPECT_EQ(post("/v1/completions", R"({"prompt": "a", )" + std::string(fields) + "}").error_param(), field) << fields;
  EXPECT_EQ(post("/v1/completions", R"({"prompt": ["a", "b"], "session": true, "stream": true})").error_param(), "session");
  EXPECT_EQ(post("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "a"}], "session": true})").error_param(), "session");
  EXPECT_EQ(give(R"({"prompt": "x"})").status, 404U);
  HttpClient client(port);
  open(client);
  EXPECT_EQ(give("{}").error_param(), "prompt");
  EXPECT_EQ(give(R"({"prompt": ""})").error_param(), "prompt");
  EXPECT_EQ(give(R"({"prompt": [100000]})").error_param(), "prompt");
  EXPECT_EQ(give(R"({"prompt": "x", "end": 3})").error_param(), "end");
  EXPECT_EQ(post("/v1/requests/cmpl-s/fork", R"({"stream": false})").error_param(), "stream") << "a child of a session is a session too";
  EXPECT_EQ(post("/v1/requests/cmpl-s/fork", R"({"stream": true, "n": 2})").error_param(), "n");
}

TEST_F(SessionsHttp, RefusesInputForRequestsThatAreNoSessions) {
  start();
  HttpClient client(port);
  client.send_post("/v1/completions", R"({"prompt": "one", "stream": true})", "X-Request-Id: s\r\n");
  ASSERT_TRUE(engine.wait_submitted(1));
  EXPECT_EQ(give(R"({"prompt": "x"})").error_param(), "id");
}

}  // namespace
}  // namespace quire
