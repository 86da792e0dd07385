// Tests routes, limits and errors over real sockets.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "server/running_server.h"

namespace quire {
namespace {

using HttpTest = RunningServer;

TEST_F(HttpTest, AnswersOpenRoutes) {
  start();
  HttpClient client(port);
  EXPECT_EQ(client.get("/health").status, 200U);
  const auto page = client.get("/");
  EXPECT_EQ(page.header("Content-Type"), "text/html; charset=utf-8");
  EXPECT_NE(page.body.find("<textarea"), std::string::npos);
  EXPECT_EQ(client.get("/v1/models").json().at("data").as_array()[0].at("id"), "bytes");
  EXPECT_TRUE(client.get("/version").json().at("version").is_string());
  EXPECT_NE(client.get("/metrics").body.find("vllm:num_requests_running"), std::string::npos);
}

TEST_F(HttpTest, TokenizeAndDetokenizeAreInverse) {
  start();
  HttpClient client(port);
  const auto tokens = client.post("/tokenize", R"({"prompt": "hé", "return_token_strs": true})").json();
  EXPECT_EQ(tokens.at("count"), 3);
  EXPECT_EQ(tokens.at("max_model_len"), 512);
  EXPECT_EQ(tokens.at("token_strs").as_array()[0], "h");
  const std::string list = boost::json::serialize(tokens.at("tokens"));
  EXPECT_EQ(client.post("/detokenize", R"({"tokens": )" + list + "}").json().at("prompt"), "hé");
  const auto chat = client.post("/tokenize", R"({"messages": [{"role": "user", "content": "a"}]})").json();
  EXPECT_EQ(chat.at("count"), 18);  // <user>a<assistant>
}

TEST_F(HttpTest, UnknownPathsAndWrongMethodsNameTheAlternatives) {
  start();
  HttpClient client(port);
  EXPECT_EQ(client.get("/v1/nothing").status, 404U);
  const auto wrong = client.get("/v1/completions");
  EXPECT_EQ(wrong.status, 405U);
  EXPECT_EQ(wrong.header("Allow"), "POST");
  EXPECT_EQ(client.post("/health?x=1", "").status, 405U);
  EXPECT_EQ(client.get("/health?x=1").status, 200U);
}

TEST_F(HttpTest, HeadGetsTheHeadersOnly) {
  start();
  HttpClient client(port);
  client.send("HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  ClientResponse head;
  ASSERT_TRUE(client.receive_head(head));
  EXPECT_EQ(head.status, 200U);
  EXPECT_EQ(client.get("/health").status, 200U);  // there was no body between the two answers
}

TEST_F(HttpTest, RequiresTheKeyOnProtectedRoutes) {
  start({.api_key = "secret"});
  HttpClient client(port);
  EXPECT_EQ(client.get("/health").status, 200U);
  EXPECT_EQ(client.get("/").status, 200U);
  const auto refused = client.get("/v1/models");
  EXPECT_EQ(refused.status, 401U);
  EXPECT_EQ(refused.json().at("error").at("code"), "invalid_api_key");
  for (const char* path : {"/metrics", "/version", "/v1/nothing"}) EXPECT_EQ(client.get(path).status, 401U) << path;
  EXPECT_EQ(client.get("/v1/models", "Authorization: Bearer secreT\r\n").status, 401U);
  EXPECT_EQ(client.get("/v1/models", "Authorization: Bearer secret\r\n").status, 200U);
  EXPECT_EQ(client.post("/v1/completions", R"({"prompt": "a"})").status, 401U);
  EXPECT_EQ(engine.num_submitted(), 0U);
}

TEST_F(HttpTest, ServesManyAndPipelinedRequestsOnOneConnection) {
  engine.answer_with("yes");
  start();
  HttpClient client(port);
  std::string bytes;
  for (int i = 0; i < 5; ++i)
    bytes += HttpClient::post_text("/v1/completions", R"({"prompt": "a"})") + HttpClient::post_text("/tokenize", R"({"prompt": "ab"})");
  client.send(bytes);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(client.receive().json().at("choices").as_array()[0].at("text"), "yes");
    EXPECT_EQ(client.receive().json().at("count"), 2);
  }
  EXPECT_EQ(client.get("/health").status, 200U);
}

TEST_F(HttpTest, ConnectionCloseClosesTheConnection) {
  start();
  HttpClient client(port);
  EXPECT_EQ(client.get("/health", "Connection: close\r\n").status, 200U);
  EXPECT_TRUE(client.at_end());
}

TEST_F(HttpTest, RefusesALargeBodyAndNamesTheLimit) {
  start({.max_body_bytes = 2000});
  HttpClient client(port);
  const auto refused = client.post("/v1/completions", std::string(5000, 'x'));
  EXPECT_EQ(refused.status, 413U);
  EXPECT_NE(refused.error_message().find("2000"), std::string::npos);
  HttpClient chunked(port);
  chunked.send(
      "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n1000\r\n" +
      std::string(4096, 'x') + "\r\n");
  EXPECT_EQ(chunked.receive().status, 413U);
}

TEST_F(HttpTest, RefusesTooManyHeaders) {
  start();
  HttpClient many(port);
  std::string headers;
  for (int i = 0; i < 200; ++i) headers += "X-" + std::to_string(i) + ": 1\r\n";
  EXPECT_EQ(many.get("/health", headers).status, 431U);
  HttpClient large(port);
  EXPECT_EQ(large.get("/health", "X: " + std::string(70'000, 'x') + "\r\n").status, 431U);
}

TEST_F(HttpTest, AnswersGarbageAndKeepsServing) {
  start();
  for (const std::string& garbage :
       {std::string("\x00\xff\xfe garbage\r\n\r\n", 16), std::string("GET / HTTP/9.9\r\n\r\n"), std::string("GET / HTTP/1.1\r\n\r\n"),
        std::string("GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n"),
        std::string("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: -1\r\n\r\n"),
        std::string("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1\r\nContent-Length: "
                    "2\r\n\r\nab"),
        std::string(
            "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")}) {
    HttpClient client(port);
    client.send(garbage);
    EXPECT_EQ(client.receive().status, 400U) << garbage;
  }
  EXPECT_EQ(HttpClient(port).get("/health").status, 200U);
}

TEST_F(HttpTest, SlowHeadersAndBodiesEndTheConnection) {
  start({.header_timeout_ms = 50, .body_timeout_ms = 50});
  HttpClient header(port);
  header.send("GET /health HT");
  EXPECT_TRUE(header.at_end());
  HttpClient body(port);
  body.send("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{");
  EXPECT_TRUE(body.at_end());
  EXPECT_EQ(HttpClient(port).get("/health").status, 200U);
}

TEST_F(HttpTest, AnIdleConnectionIsClosed) {
  start({.idle_timeout_ms = 50});
  HttpClient client(port);
  EXPECT_TRUE(client.at_end());
}

TEST_F(HttpTest, ExpectContinueIsAnswered) {
  start();
  HttpClient client(port);
  client.send(
      "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n");
  ClientResponse interim;
  ASSERT_TRUE(client.receive_head(interim));
  EXPECT_EQ(interim.status, 100U);
  client.send(R"({"prompt": "a"})");
  EXPECT_EQ(client.receive().status, 200U);
}

TEST_F(HttpTest, RefusesBodiesThatExpandWhenParsed) {
  start();
  std::string ones = "1";
  for (int i = 0; i < 3'000'000; ++i) ones += ",1";
  for (const char* path : {"/v1/completions", "/detokenize"}) {
    const ClientResponse refused = post(path, R"({"prompt": [)" + ones + "]}");
    EXPECT_EQ(refused.status, 413U) << path;
    EXPECT_NE(refused.error_message().find("too many values"), std::string::npos);
  }
  std::string long_prompt = "65";
  for (int i = 1; i < 200'000; ++i) long_prompt += ",65";
  EXPECT_EQ(post("/v1/completions", R"({"prompt": [)" + long_prompt + "]}").error_param(), "prompt") << "the context is too short for it";
}

TEST_F(HttpTest, BoundsPipelinedBytes) {
  start({.max_header_bytes = 1024});
  HttpClient client(port);
  client.send_post("/v1/completions", R"({"prompt": "a", "stream": true})");
  ASSERT_TRUE(engine.wait_submitted(1));
  client.send(std::string(1001, 'x'));
  EXPECT_EQ(HttpClient(port).get("/health").status, 200U);
  client.send(std::string(100'000, 'x'));
  EXPECT_EQ(HttpClient(port).get("/health").status, 200U);
}

TEST_F(HttpTest, ReportsIgnoredFieldsInAHeader) {
  engine.answer_with("hello");
  start();
  HttpClient client(port);
  for (const char* stream : {"false", "true"}) {
    const auto reply = client.post("/v1/completions",
                                   R"({"prompt": "a", "max_tokens": 2, "user": "u", "xyzzy": 1, "stream": )" + std::string(stream) + "}");
    EXPECT_EQ(reply.status, 200U);
    EXPECT_EQ(reply.header("X-Quire-Ignored-Fields"), "user, xyzzy");
    EXPECT_EQ(client.post("/v1/completions", R"({"prompt": "a", "max_tokens": 2})").header("X-Quire-Ignored-Fields"), "");
  }
}

TEST_F(HttpTest, ReturnsTokenIdsOnRequest) {
  engine.answer_with("hello");
  start();
  HttpClient client(port);
  const auto whole =
      client.post("/v1/completions", R"({"prompt": ["ab", "c"], "max_tokens": 3, "ignore_eos": true, "return_token_ids": true})").json();
  const auto& choices = whole.at("choices").as_array();
  ASSERT_EQ(choices.size(), 2U);
  EXPECT_EQ(choices[0].at("token_ids").as_array().size(), 3U);
  EXPECT_EQ(choices[0].at("prompt_token_ids"), client.post("/tokenize", R"({"prompt": "ab"})").json().at("tokens"));
  EXPECT_EQ(choices[1].at("prompt_token_ids"), client.post("/tokenize", R"({"prompt": "c"})").json().at("tokens"));
  const auto chat =
      client
          .post("/v1/chat/completions",
                R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 2, "ignore_eos": true, "return_token_ids": true})")
          .json();
  EXPECT_EQ(chat.at("prompt_token_ids").as_array().size(), 18U);
  EXPECT_EQ(chat.at("choices").as_array()[0].at("token_ids").as_array().size(), 2U);
  EXPECT_FALSE(client.post("/v1/completions", R"({"prompt": "a", "max_tokens": 1})")
                   .json()
                   .at("choices")
                   .as_array()[0]
                   .as_object()
                   .contains("token_ids"));
}

TEST_F(HttpTest, TruncatesPromptsToTheirLastTokens) {
  engine.answer_with("hello");
  start();
  HttpClient client(port);
  const auto ids = [&](const std::string& fields) {
    const auto reply = client.post("/v1/completions", R"({"return_token_ids": true, )" + fields + "}");
    EXPECT_EQ(reply.status, 200U) << reply.body;
    return reply.json().at("choices").as_array()[0].at("prompt_token_ids").as_array();
  };
  const auto last = ids(R"("prompt": "abcdef", "max_tokens": 1, "truncate_prompt_tokens": 2)");
  EXPECT_EQ(last, ids(R"("prompt": "ef", "max_tokens": 1)"));
  const std::string much(5000, 'x');
  EXPECT_EQ(ids(R"("max_tokens": 12, "truncate_prompt_tokens": -1, "prompt": ")" + much + "\"").size(), 500U)
      << "room for the answer is kept";
  EXPECT_EQ(client.post("/v1/completions", R"({"prompt": "a", "truncate_prompt_tokens": 0})").status, 400U);
}

TEST_F(HttpTest, AModelMayHaveSeveralNames) {
  engine.answer_with("hello");
  ServerOptions options;
  options.served_model_aliases = {"other", "third"};
  start(options);
  HttpClient client(port);
  EXPECT_EQ(client.get("/v1/models").json().at("data").as_array().size(), 3U);
  const auto answer = client.post("/v1/completions", R"({"model": "third", "prompt": "a", "max_tokens": 1})");
  EXPECT_EQ(answer.json().at("model"), "bytes");
  const auto unknown = client.post("/v1/completions", R"({"model": "fourth", "prompt": "a", "max_tokens": 1})");
  EXPECT_EQ(unknown.status, 404U);
  EXPECT_NE(unknown.body.find("'bytes' or 'other' or 'third'"), std::string::npos) << unknown.body;
}

TEST_F(HttpTest, AcceptsAnotherChatTemplate) {
  ServerOptions options;
  options.chat_template = "{% for m in messages %}[{{ m.content }}]{% endfor %}{% if add_generation_prompt %}>{% endif %}";
  start(options);
  HttpClient client(port);
  const std::string chat = R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": " b "}])";
  EXPECT_EQ(client.post("/tokenize", chat + "}").json().at("count"), 9) << "[a][ b ]>";
  const auto info = client.get("/tokenizer_info").json();
  EXPECT_EQ(std::string(info.at("chat_template").as_string()), options.chat_template);
  EXPECT_EQ(info.at("model_max_length"), 512);
  // [a][ b
  const std::string more = R"(, "add_generation_prompt": false, "continue_final_message": true})";
  EXPECT_EQ(client.post("/tokenize", chat + more).json().at("count"), 7) << "[a][ b ";
  EXPECT_EQ(client.post("/tokenize", chat + R"(, "continue_final_message": true})").status, 400U);
  // The template's text after the message may look like the message.
  for (const auto& [last, count] : {std::pair("]", 5), {"", 4}, {"[", 5}}) {
    const std::string body =
        R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": ")" + std::string(last) + "\"}]";
    EXPECT_EQ(client.post("/tokenize", body + more).json().at("count"), count) << "[a][" << last;
  }
}

TEST_F(HttpTest, AnswersWithoutTextForMaxTokensZero) {
  engine.answer_with("hello");
  start();
  const auto answer = HttpClient(port).post("/v1/completions", R"({"prompt": "abc", "max_tokens": 0})").json();
  EXPECT_EQ(answer.at("choices").as_array()[0].at("text"), "");
  EXPECT_EQ(answer.at("usage").at("completion_tokens"), 0);
}

TEST_F(HttpTest, AcceptsBadWordsAndAllowedTokenIds) {
  engine.answer_with("hello");
  start();
  HttpClient client(port);
  const auto refused = [&](const std::string& fields, const char* field) {
    const auto reply = client.post("/v1/completions", R"({"prompt": "a", "max_tokens": 1, )" + fields + "}");
    EXPECT_EQ(reply.status, 400U) << fields;
    EXPECT_EQ(reply.json().at("error").at("param"), field);
  };
  refused(R"("allowed_token_ids": [])", "allowed_token_ids");
  refused(R"("allowed_token_ids": [-1])", "allowed_token_ids");
  refused(R"("bad_words": "x")", "bad_words");
  refused(R"("bad_words": [""])", "bad_words");
  EXPECT_EQ(
      client.post("/v1/completions", R"({"prompt": "a", "max_tokens": 1, "bad_words": ["x", "\n\t y"], "allowed_token_ids": [5]})").status,
      200U);
}

TEST_F(HttpTest, ErrorsHaveOpenAisFormat) {
  start();
  const auto response = post("/v1/completions", R"({"prompt": "a", "temperature": 5})");
  EXPECT_EQ(response.status, 400U);
  const auto error = response.json().at("error").as_object();
  EXPECT_EQ(error.at("type"), "invalid_request_error");
  EXPECT_EQ(error.at("param"), "temperature");
  EXPECT_TRUE(error.at("code").is_null());
  EXPECT_NE(response.error_message().find("0 to 2"), std::string::npos);
}

TEST_F(HttpTest, RefusesOtherModels) {
  start();
  const auto response = post("/v1/completions", R"({"prompt": "a", "model": "gpt-4"})");
  EXPECT_EQ(response.status, 404U);
  EXPECT_EQ(response.json().at("error").at("code"), "model_not_found");
  EXPECT_NE(response.error_message().find("bytes"), std::string::npos);
}

TEST_F(HttpTest, RefusesPromptsThatDoNotFit) {
  start();
  EXPECT_EQ(post("/v1/completions", R"({"prompt": ")" + std::string(512, 'a') + "\"}").error_param(), "prompt");
  EXPECT_EQ(post("/v1/completions", R"({"prompt": ")" + std::string(100'000, 'a') + "\"}").error_param(), "prompt");
  EXPECT_EQ(post("/v1/completions", R"({"prompt": ")" + std::string(500, 'a') + R"(", "max_tokens": 13})").error_param(), "max_tokens");
  EXPECT_EQ(post("/v1/completions", R"({"prompt": ""})").error_param(), "prompt");
  EXPECT_EQ(post("/v1/chat/completions", R"({"messages": [{"role": "user", "content": ")" + std::string(600, 'a') + "\"}]}").error_param(),
            "messages");
  EXPECT_EQ(engine.num_submitted(), 0U);
}

TEST_F(HttpTest, TokenizingIsBoundedByTheContext) {
  start();
  const auto long_text = post("/tokenize", R"({"prompt": ")" + std::string(513, 'a') + "\"}");
  EXPECT_EQ(long_text.status, 400U);
  EXPECT_EQ(long_text.error_param(), "prompt");
  EXPECT_NE(long_text.error_message().find("512"), std::string::npos);
  EXPECT_EQ(post("/tokenize", R"({"prompt": ")" + std::string(512, 'a') + "\"}").status, 200U);
  EXPECT_EQ(post("/tokenize", R"({"prompt": ")" + std::string(100'000, 'a') + "\"}").error_param(), "prompt");
  EXPECT_EQ(post("/tokenize", R"({"messages": [{"role": "user", "content": ")" + std::string(600, 'a') + "\"}]}").error_param(),
            "messages");
  std::string tokens = "1";
  for (int i = 0; i < 512; ++i) tokens += ",1";
  EXPECT_EQ(post("/detokenize", R"({"tokens": [)" + tokens + "]}").error_param(), "tokens");
}

TEST_F(HttpTest, FullQueueReturnsRetryAfter) {
  engine.refuse_with(Error{ErrorCode::overloaded, "", "the waiting queue is full", "try again later"});
  start({.retry_after_s = 3});
  const auto response = post("/v1/completions", R"({"prompt": "a"})");
  EXPECT_EQ(response.status, 429U);
  EXPECT_EQ(response.header("Retry-After"), "3");
  EXPECT_EQ(response.json().at("error").at("type"), "rate_limit_error");
}

TEST_F(HttpTest, RefusedChoiceAbortsTheOtherChoices) {
  engine.refuse_with(Error{ErrorCode::overloaded, "", "the waiting queue is full", ""}, 2);
  start();
  EXPECT_EQ(post("/v1/completions", R"({"prompt": ["a", "b", "c"]})").status, 429U);
  ASSERT_EQ(engine.num_submitted(), 2U);
  EXPECT_EQ(engine.at(0).finished, FinishReason::abort);
  EXPECT_EQ(engine.at(1).finished, FinishReason::abort);
}

TEST_F(HttpTest, IsReadyWhenRequestsAreAccepted) {
  engine.set_paused(true);
  start();
  HttpClient client(port);
  EXPECT_EQ(client.get("/health").status, 200U);
  const auto paused = client.get("/ready");
  EXPECT_EQ(paused.status, 503U);
  EXPECT_EQ(paused.header("Retry-After"), "1");
  EXPECT_NE(paused.error_message().find("/resume"), std::string::npos);
}

TEST_F(HttpTest, AStoppedEngineIsNotReady) {
  start();
  HttpClient client(port);
  EXPECT_EQ(client.get("/ready").status, 200U);
  engine.stop(0);
  EXPECT_EQ(client.get("/health").status, 200U);
  EXPECT_EQ(client.get("/ready").status, 503U);
}

TEST_F(HttpTest, IsNotReadyWhileDraining) {
  start();
  HttpClient early(port), late(port), busy(port);
  EXPECT_EQ(early.get("/ready").json().at("status"), "ready");
  busy.send(HttpClient::post_text("/v1/completions", R"({"prompt": "a"})"));  // keeps the server from ending
  late.send("GET /ready HTTP/1.1\r\nHost: localhost\r\n");
  ASSERT_TRUE(engine.wait_submitted(1));
  EXPECT_EQ(early.get("/ready").status, 200U);
  drain();
  EXPECT_TRUE(early.at_end());
  late.send("\r\n");
  EXPECT_EQ(late.receive().status, 503U);
}

TEST_F(HttpTest, AnAddressInUseIsAnError) {
  start();
  Logger logger({.level = LogLevel::off});
  const auto second = Server::create(engine, {.port = port}, logger);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().field, "port");
  EXPECT_EQ(Server::create(engine, {.host = "nowhere", .port = 0}, logger).error().field, "host");
  EXPECT_EQ(BoundPort::bind({.port = port}).error().field, "port");
}

TEST_F(HttpTest, ABoundPortRefusesClientsUntilTheServerListens) {
  auto bound = BoundPort::bind({.port = 0});
  ASSERT_TRUE(bound.has_value()) << bound.error().to_string();
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  const int descriptor = bound->release();
  ASSERT_EQ(getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const int client = socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(connect(client, reinterpret_cast<const sockaddr*>(&address), size), -1);
  EXPECT_EQ(errno, ECONNREFUSED);
  close(client);
  close(descriptor);
}

}  // namespace
}  // namespace quire
