// Tests the events that a server writes to the log.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "quire/base/logger.h"
#include "server/running_server.h"
#include "support/pipe.h"

namespace quire {
namespace {

class LogTest : public RunningServer {
 protected:
  LogTest() { log_options = {.format = LogFormat::json, .descriptor = pipe_.writer()}; }
  ~LogTest() override { stop_and_flush(); }  // before the pipe is closed

  // Stops the server and returns everything that it logged.
  std::vector<boost::json::value> stop_and_read() {
    stop_and_flush();
    std::vector<boost::json::value> lines;
    for (const std::string& line : pipe_.lines()) {
      lines.push_back(boost::json::parse(line));
      text_ += line;
    }
    return lines;
  }
  static std::vector<boost::json::value> events(const std::vector<boost::json::value>& lines, std::string_view event) {
    std::vector<boost::json::value> found;
    for (const auto& line : lines)
      if (line.at("event").as_string() == event) found.push_back(line);
    return found;
  }

  std::string text_;

 private:
  Pipe pipe_;
};

TEST_F(LogTest, WarnsAndNamesTheFlagsWhenOpenToTheNetwork) {
  start({.host = "0.0.0.0"});
  EXPECT_EQ(HttpClient(port).get("/health").status, 200U);
  const auto lines = events(stop_and_read(), "open_to_the_network");
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].at("level"), "warning");
  EXPECT_NE(lines[0].at("remedy").as_string().find("--api-key"), boost::json::string::npos);
  EXPECT_NE(lines[0].at("remedy").as_string().find("--allowed-host"), boost::json::string::npos);
}

TEST_F(LogTest, DoesNotWarnWithAKeyOrOnLoopback) {
  start({.host = "0.0.0.0", .tenant_keys = {{"a", "key"}}});
  EXPECT_TRUE(events(stop_and_read(), "open_to_the_network").empty());
}

TEST_F(LogTest, WritesOneLinePerRequestWithoutSecrets) {
  engine.answer_with("answer-text");
  start({.api_key = "key-text"});
  HttpClient client(port);
  const std::string headers = "Authorization: Bearer key-text\r\nX-Request-Id: mine-1\r\n";
  const auto answer = client.post("/v1/completions?secret=query-text", R"({"prompt": "prompt-text", "cache_salt": "salt-text"})", headers);
  EXPECT_EQ(answer.status, 200U);
  EXPECT_EQ(answer.header("X-Request-Id"), "mine-1");
  const std::string id(answer.json().at("id").as_string());
  EXPECT_TRUE(id.starts_with("cmpl-mine-1-")) << id;
  client.post("/v1/completions", "{}", "Authorization: Bearer wrong-text\r\n");
  const auto lines = stop_and_read();
  EXPECT_EQ(events(lines, "listening").size(), 1U);
  EXPECT_EQ(events(lines, "draining").size(), 1U);
  EXPECT_EQ(events(lines, "stopped").size(), 1U);
  const auto requests = events(lines, "request");
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[0].at("id"), "mine-1");
  EXPECT_EQ("cmpl-" + std::string(requests[0].at("answer_id").as_string()), id);
  EXPECT_EQ(requests[0].at("peer"), "127.0.0.1");
  EXPECT_EQ(requests[0].at("method"), "POST");
  EXPECT_EQ(requests[0].at("path"), "/v1/completions");
  EXPECT_EQ(requests[0].at("status"), 200);
  EXPECT_EQ(requests[0].at("prompt_tokens"), 11);
  EXPECT_EQ(requests[0].at("cached_tokens"), 16);
  EXPECT_EQ(requests[0].at("output_tokens"), 12);
  EXPECT_EQ(requests[1].at("status"), 401);
  EXPECT_EQ(requests[1].at("code"), "invalid_api_key");
  for (const char* secret : {"key-text", "wrong-text", "prompt-text", "salt-text", "query-text", "answer-text"})
    EXPECT_EQ(text_.find(secret), std::string::npos) << secret;
}

TEST_F(LogTest, WritesTheReasonOfEachRefusal) {
  start();
  HttpClient client(port);
  EXPECT_EQ(client.post("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "Hi"}], "top_p": 7})").status, 400U);
  EXPECT_EQ(client.post("/v1/messages", R"({"model": "other", "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}]})").status,
            404U);
  EXPECT_EQ(client.get("/nowhere").status, 404U);
  const auto requests = events(stop_and_read(), "request");
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_EQ(requests[0].at("code"), "invalid_request_error");
  EXPECT_EQ(requests[0].at("param"), "top_p");
  EXPECT_EQ(requests[1].at("code"), "model_not_found");
  EXPECT_EQ(requests[1].at("param"), "model");
  EXPECT_EQ(requests[2].at("code"), "not_found");
}

TEST_F(LogTest, DoesNotLogKeysOrSecretsOfTenants) {
  engine.answer_with("x");
  start({.tenant_keys = {{"a", "key-text"}}, .tenant_secret = "secret-text"});
  for (const char* key : {"key-text", "wrong-text"})
    HttpClient(port).post("/v1/completions", R"({"prompt": "p"})", std::string("Authorization: Bearer ") + key + "\r\n");
  HttpClient(port).post("/pause", "", "Authorization: Bearer key-text\r\n");
  ASSERT_EQ(events(stop_and_read(), "request").size(), 3U);
  for (const char* secret : {"key-text", "wrong-text", "secret-text"}) EXPECT_EQ(text_.find(secret), std::string::npos) << secret;
}

TEST_F(LogTest, ReplacesInvalidRequestIds) {
  engine.answer_with("x");
  start();
  HttpClient client(port);
  std::vector<std::string> ids;
  for (const std::string& given : {std::string(), std::string("a b"), std::string("a\"b"), std::string(129, 'a'), std::string("\xC3\xA9")})
    ids.push_back(
        client.post("/v1/completions", R"({"prompt": "a", "stream": true})", "X-Request-Id: " + given + "\r\n").header("X-Request-Id"));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(ids[i].size(), 24U) << ids[i];
    if (i > 0) EXPECT_NE(ids[i], ids[i - 1]);
  }
  EXPECT_EQ(client.get("/health", "X-Request-Id: " + std::string(128, 'a') + "\r\n").header("X-Request-Id"), std::string(128, 'a'));
  HttpClient garbage(port);
  garbage.send("GET / HTTP/9.9\r\n\r\n");
  EXPECT_EQ(garbage.receive().header("X-Request-Id").size(), 24U);
}

TEST_F(LogTest, HostilePathsStayInTheirField) {
  start();
  HttpClient client(port);
  EXPECT_EQ(client.get("/\x80\"},{\"event\":\"fake\"").status, 404U);
  const auto requests = events(stop_and_read(), "request");
  ASSERT_EQ(requests.size(), 1U);
  EXPECT_EQ(requests[0].at("path"), "/\xEF\xBF\xBD\"},{\"event\":\"fake\"");
}

TEST_F(LogTest, LogsSlowRequestsAsWarnings) {
  start({.log_slow_ms = 20});
  HttpClient client(port);
  client.send(HttpClient::post_text("/v1/completions", R"({"prompt": "a"})"));
  ASSERT_TRUE(engine.wait_submitted(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(25));
  engine.end(RequestId{0}, FinishReason::stop);
  EXPECT_EQ(client.receive().status, 200U);
  const auto slow = events(stop_and_read(), "slow_request");
  ASSERT_EQ(slow.size(), 1U);
  EXPECT_EQ(slow[0].at("level"), "warning");
  EXPECT_GE(slow[0].at("ms").as_double(), 20.0);
}

TEST_F(LogTest, LogsManyRefusalsAsOneLinePerSecond) {
  engine.refuse_with(Error{ErrorCode::overloaded, "", "the waiting queue is full", ""});
  start();
  HttpClient client(port);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(client.post("/v1/completions", R"({"prompt": "a"})").status, 429U);
  const auto lines = stop_and_read();
  EXPECT_EQ(events(lines, "request").size(), 0U);
  EXPECT_GE(events(lines, "overload").size(), 1U);
  EXPECT_LT(events(lines, "overload").size(), 20U);
}

TEST_F(LogTest, LogsADisconnectWithASeparateStatus) {
  start();
  HttpClient client(port);
  client.send(HttpClient::post_text("/v1/completions", R"({"prompt": "a"})"));
  ASSERT_TRUE(engine.wait_submitted(1));
  client.close();
  ASSERT_TRUE(engine.wait_finished(0));
  const auto requests = events(stop_and_read(), "request");
  ASSERT_EQ(requests.size(), 1U);
  EXPECT_EQ(requests[0].at("status"), 499);
}

TEST_F(LogTest, AnswersAnExceptionWith500AndLogsIt) {
  engine.throw_at_submit("out of luck");
  start();
  for (const std::size_t size : {std::size_t{10}, std::size_t{10'000}}) {
    const auto response = post("/v1/completions", R"({"prompt": "a", "user": ")" + std::string(size, 'u') + "\"}");
    EXPECT_EQ(response.status, 500U);
    EXPECT_EQ(response.body.find("out of luck"), std::string::npos);
  }
  EXPECT_EQ(HttpClient(port).get("/health").status, 200U);
  const auto exceptions = events(stop_and_read(), "exception");
  ASSERT_EQ(exceptions.size(), 2U);
  EXPECT_EQ(exceptions[0].at("what"), "out of luck");
}

}  // namespace
}  // namespace quire
