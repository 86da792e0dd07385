// Tests completions over real sockets, with an engine that the test drives by hand.
#include <chrono>
#include <string>
#include <thread>

#include "server/running_server.h"

namespace quire {
namespace {

using CompletionTest = RunningServer;

std::string streamed_text(const std::vector<boost::json::value>& events) {
  std::string text;
  for (const auto& event : events)
    for (const auto& choice : event.at("choices").as_array()) text += choice.at("text").as_string();
  return text;
}

TEST_F(CompletionTest, WholeAnswerHasTextFinishReasonAndUsage) {
  engine.answer_with("hello");
  start();
  const auto answer = post("/v1/completions", R"({"prompt": "abc", "model": "bytes"})").json();
  EXPECT_EQ(answer.at("object"), "text_completion");
  EXPECT_EQ(answer.at("model"), "bytes");
  EXPECT_FALSE(answer.as_object().contains("system_fingerprint")) << "the field must be a string or absent";
  const auto& choice = answer.at("choices").as_array()[0];
  EXPECT_EQ(choice.at("text"), "hello");
  EXPECT_EQ(choice.at("finish_reason"), "stop");
  EXPECT_TRUE(choice.at("logprobs").is_null());
  EXPECT_EQ(answer.at("usage").at("prompt_tokens"), 3);
  EXPECT_EQ(answer.at("usage").at("completion_tokens"), 6);  // EOS counts
  EXPECT_EQ(answer.at("usage").at("total_tokens"), 9);
  EXPECT_EQ(answer.at("usage").at("prompt_tokens_details").at("cached_tokens"), 16);
  EXPECT_EQ(tokens_to_bytes(engine.at(0).request.prompt), "abc");
}

TEST_F(CompletionTest, ChatRendersTheTemplate) {
  engine.answer_with("hi");
  start();
  const auto answer =
      post(
          "/v1/chat/completions",
          R"({"messages": [{"role": "user", "content": "yo"}], "tools": [{"function": {"name": "f"}}, {"function": {"name": "g"}}], "chat_template_kwargs": {"shout": true}})")
          .json();
  EXPECT_EQ(answer.at("object"), "chat.completion");
  const auto& choice = answer.at("choices").as_array()[0];
  EXPECT_EQ(choice.at("message").at("role"), "assistant");
  EXPECT_EQ(choice.at("message").at("content"), "hi");
  EXPECT_EQ(tokens_to_bytes(engine.at(0).request.prompt), "<user>yo[tools: 2]!<assistant>");
  EXPECT_EQ(engine.at(0).request.sampling.max_tokens, 512U - 30U);  // the rest of the context
}

TEST_F(CompletionTest, TextPartsAreJoinedUnlessTheTemplateIteratesOverThem) {
  engine.answer_with("ab");
  const auto prompt_of = [this](const std::string& chat_template) {
    start({.chat_template = chat_template});
    const std::size_t number = engine.num_submitted();
    const ClientResponse answer =
        post("/v1/chat/completions",
             R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "What"}, {"type": "text", "text": " is it?"}]}]})");
    EXPECT_EQ(answer.status, 200U) << answer.body;
    stop_and_flush();
    return tokens_to_bytes(engine.at(number).request.prompt);
  };
  const std::string parts = "{% for part in m.content %}[{{ part.text }}]{% endfor %}";
  EXPECT_EQ(prompt_of("{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}" + parts +
                      "{% endif %}{% endfor %}"),
            "<user>[What][ is it?]");
  EXPECT_EQ(prompt_of("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"), "<user>What\n is it?");
  EXPECT_EQ(prompt_of("{% for m in messages %}{% if '</think>' in m.content %}x{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}"),
            "<user>What\n is it?")
      << "a template that prints the list gets the joined text";
  EXPECT_EQ(
      prompt_of(
          "{% for m in messages %}{% if '</think>' in m.content %}x{% endif %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}"
          "{% endif %}{% endfor %}"),
      "<user>What\n is it?");
}

TEST_F(CompletionTest, MaxTokensEndsWithLength) {
  engine.answer_with("hello");
  start();
  const auto answer = post("/v1/completions", R"({"prompt": "a", "max_tokens": 2})").json();
  EXPECT_EQ(answer.at("choices").as_array()[0].at("text"), "he");
  EXPECT_EQ(answer.at("choices").as_array()[0].at("finish_reason"), "length");
}

TEST_F(CompletionTest, EchoPutsThePromptBeforeTheText) {
  engine.answer_with("b");
  start();
  EXPECT_EQ(post("/v1/completions", R"({"prompt": "a", "echo": true})").json().at("choices").as_array()[0].at("text"), "ab");
  const auto events = stream_events(post("/v1/completions", R"({"prompt": "a", "echo": true, "stream": true})").body);
  EXPECT_EQ(streamed_text(events), "ab");
}

TEST_F(CompletionTest, ChoicesAreNumberedOverPromptsAndN) {
  engine.answer_with("x");
  start();
  const auto answer = post("/v1/completions", R"({"prompt": ["p", "qq"], "n": 2, "seed": 7})").json();
  ASSERT_EQ(answer.at("choices").as_array().size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(answer.at("choices").as_array()[i].at("index").as_int64(), static_cast<std::int64_t>(i));
    EXPECT_EQ(tokens_to_bytes(engine.at(i).request.prompt), i < 2 ? "p" : "qq");
    EXPECT_EQ(engine.at(i).request.sampling.seed, 7 + i % 2);
  }
  EXPECT_EQ(answer.at("usage").at("prompt_tokens"), 3);
  EXPECT_EQ(answer.at("usage").at("completion_tokens"), 8);
}

TEST_F(CompletionTest, BestOfReturnsTheLikeliestChoices) {
  start();
  HttpClient client(port);
  client.send(HttpClient::post_text("/v1/completions", R"({"prompt": "p", "n": 2, "best_of": 4})"));
  ASSERT_TRUE(engine.wait_submitted(4));
  EXPECT_EQ(engine.at(0).request.sampling.logprobs, 0U);
  const float logprobs[] = {-3.0F, -1.0F, -4.0F, -2.0F};
  for (std::uint64_t i = 0; i < 4; ++i) {
    RequestOutput output = last_output_of(RequestId{i}, {static_cast<TokenId>('a' + i)}, FinishReason::length);
    output.logprobs.push_back({{{output.tokens[0], logprobs[i], 1}}});
    engine.deliver(std::move(output));
  }
  const auto answer = client.receive().json();
  const auto& choices = answer.at("choices").as_array();
  ASSERT_EQ(choices.size(), 2U);
  EXPECT_EQ(choices[0].at("text"), "b");
  EXPECT_EQ(choices[0].at("index"), 0);
  EXPECT_TRUE(choices[0].at("logprobs").is_null()) << "logprobs were not requested";
  EXPECT_EQ(choices[1].at("text"), "d");
  EXPECT_EQ(answer.at("usage").at("completion_tokens"), 4);
}

TEST_F(CompletionTest, StreamHasTheSameTextInPieces) {
  engine.answer_with("héllo");
  start();
  const auto response = post("/v1/completions", R"({"prompt": "abc", "stream": true, "stream_options": {"include_usage": true}})");
  EXPECT_EQ(response.header("Content-Type"), "text/event-stream; charset=utf-8");
  const auto events = stream_events(response.body);
  EXPECT_EQ(streamed_text(events), "héllo");
  for (const auto& event : events) EXPECT_EQ(event.at("id"), events[0].at("id"));
  const auto& last = events.back();
  EXPECT_TRUE(last.at("choices").as_array().empty());
  EXPECT_EQ(last.at("usage").at("completion_tokens"), 7);
  EXPECT_EQ(last.at("usage").at("prompt_tokens_details").at("cached_tokens"), 16);
  EXPECT_EQ(events[events.size() - 2].at("choices").as_array()[0].at("finish_reason"), "stop");
  EXPECT_TRUE(events[0].at("usage").is_null());
}

// Sends a request for a stream and emits its answer step by step. Outputs that the server's thread has not taken yet are merged into one
// event, so each step is received before the next one is emitted.
class SteppedStream {
 public:
  SteppedStream(FakeEngine& engine, std::uint16_t port, const char* route, const char* body) : engine_(engine), client_(port) {
    client_.send(HttpClient::post_text(route, body));
    ClientResponse head;
    EXPECT_TRUE(client_.receive_head(head));
    EXPECT_TRUE(engine_.wait_submitted(1));
  }
  // Emits one step and returns the choices of its events.
  std::vector<boost::json::value> emit(std::string_view text) {
    engine_.emit(RequestId{0}, std::string(text));
    std::string chunk;
    EXPECT_TRUE(client_.receive_chunk(chunk));
    return choices_of(chunk + "data: [DONE]\n\n");  // stream_events() wants an end
  }
  std::vector<boost::json::value> end() {
    engine_.end(RequestId{0}, FinishReason::stop);
    std::string rest;
    while (client_.receive_chunk(rest)) {
    }
    return choices_of(rest);
  }

 private:
  static std::vector<boost::json::value> choices_of(const std::string& events) {
    std::vector<boost::json::value> choices;
    for (const auto& event : stream_events(events)) choices.push_back(event.at("choices").at(0));
    return choices;
  }
  FakeEngine& engine_;
  HttpClient client_;
};

TEST_F(CompletionTest, AChatStreamBeginsWithTheRole) {
  start();
  SteppedStream stream(engine, port, "/v1/chat/completions", R"({"messages": [{"role": "user", "content": "a"}], "stream": true})");
  const auto first = stream.emit("a"), second = stream.emit("b"), last = stream.end();
  ASSERT_EQ(first.size(), 2U);
  EXPECT_EQ(first[0].at("delta"), (boost::json::object{{"role", "assistant"}, {"content", ""}}));
  EXPECT_EQ(first[1].at("delta"), (boost::json::object{{"content", "a"}}));
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(second[0].at("delta"), (boost::json::object{{"content", "b"}}));
  EXPECT_TRUE(second[0].at("finish_reason").is_null());
  ASSERT_EQ(last.size(), 1U);
  EXPECT_EQ(last[0].at("delta"), boost::json::object());
  EXPECT_EQ(last[0].at("finish_reason"), "stop");
}

TEST_F(CompletionTest, EachStepIsOneWriteThatArrivesBeforeTheNext) {
  start();
  HttpClient client(port);
  client.send(HttpClient::post_text("/v1/completions", R"({"prompt": "a", "stream": true})"));
  ClientResponse head;
  ASSERT_TRUE(client.receive_head(head));
  ASSERT_TRUE(engine.wait_submitted(1));
  for (const char* text : {"one", "two"}) {
    engine.emit(RequestId{0}, text);
    std::string chunk;
    ASSERT_TRUE(client.receive_chunk(chunk));
    EXPECT_NE(chunk.find(text), std::string::npos);
  }
  engine.end(RequestId{0}, FinishReason::stop);
  std::string rest;
  while (client.receive_chunk(rest)) {
  }
  EXPECT_NE(rest.find("[DONE]"), std::string::npos);
  EXPECT_EQ(client.get("/health").status, 200U);  // the connection stays usable
}

TEST_F(CompletionTest, IncompleteCharacterIsNeverSent) {
  start();
  SteppedStream stream(engine, port, "/v1/completions", R"({"prompt": "a", "stream": true})");
  engine.emit(RequestId{0}, "\xE2\x82");
  const auto first = stream.emit("\xAC!");
  engine.emit(RequestId{0}, "\xE2");
  const auto last = stream.end();
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].at("text"), "€!");
  ASSERT_EQ(last.size(), 1U);
  EXPECT_EQ(last[0].at("text"), "\xEF\xBF\xBD");
  EXPECT_EQ(last[0].at("finish_reason"), "stop");
}

TEST_F(CompletionTest, StopStringEndsTheRequestInTheEngine) {
  start();
  HttpClient client(port);
  client.send(HttpClient::post_text("/v1/completions", R"({"prompt": "a", "stop": ["xx", "END"]})"));
  ASSERT_TRUE(engine.wait_submitted(1));
  engine.emit(RequestId{0}, "some E");
  engine.emit(RequestId{0}, "ND and more");
  const auto choice = client.receive().json().at("choices").as_array()[0];
  EXPECT_EQ(choice.at("text"), "some ");
  EXPECT_EQ(choice.at("finish_reason"), "stop");
  EXPECT_EQ(choice.at("stop_reason"), "END");
  ASSERT_TRUE(engine.wait_finished(0));
  EXPECT_EQ(engine.at(0).finished, FinishReason::stop);
  engine.end(RequestId{0}, FinishReason::stop);  // the server does not wait for the engine's final output
  EXPECT_EQ(client.get("/health").status, 200U);
}

TEST_F(CompletionTest, IncludeStopStrKeepsTheStopString) {
  engine.answer_with("some END more");
  start();
  const auto answer = post("/v1/completions", R"({"prompt": "a", "stop": "END", "include_stop_str_in_output": true})").json();
  EXPECT_EQ(answer.at("choices").as_array()[0].at("text"), "some END");
}

TEST_F(CompletionTest, StopStringsWaitForMinTokens) {
  engine.answer_with("END END!");
  start();
  const auto answer = post("/v1/completions", R"({"prompt": "a", "stop": "END", "min_tokens": 4})").json();
  EXPECT_EQ(answer.at("choices").as_array()[0].at("text"), "END ");
}

TEST_F(CompletionTest, NamesTheStopToken) {
  start();
  HttpClient client(port);
  client.send(HttpClient::post_text("/v1/completions", R"({"prompt": "a", "stop_token_ids": [33]})"));
  ASSERT_TRUE(engine.wait_submitted(1));
  RequestOutput last = last_output_of(RequestId{0}, {'a', 33}, FinishReason::stop);
  last.stop_token = 33;
  engine.deliver(std::move(last));
  const auto choice = client.receive().json().at("choices").as_array()[0];
  EXPECT_EQ(choice.at("text"), "a");
  EXPECT_EQ(choice.at("stop_reason"), 33);
}

TEST_F(CompletionTest, LogprobsHaveTheFormatOfEachRoute) {
  engine.answer_with("ab");
  start();
  const auto plain = post("/v1/completions", R"({"prompt": "a", "logprobs": 1})").json().at("choices").as_array()[0].at("logprobs");
  EXPECT_EQ(plain.at("tokens").as_array().size(), 3U);
  EXPECT_EQ(plain.at("tokens").as_array()[1], "b");
  EXPECT_EQ(plain.at("token_logprobs").as_array()[0], -0.5);
  EXPECT_EQ(plain.at("text_offset").as_array()[1], 1);
  EXPECT_EQ(plain.at("top_logprobs").as_array()[0].at("b"), -1.5);
  const auto chat = post("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "a"}], "logprobs": true, "top_logprobs": 1})")
                        .json()
                        .at("choices")
                        .as_array()[0]
                        .at("logprobs")
                        .at("content")
                        .as_array();
  ASSERT_EQ(chat.size(), 3U);
  EXPECT_EQ(chat[0].at("token"), "a");
  EXPECT_EQ(chat[0].at("bytes").as_array()[0], 'a');
  EXPECT_EQ(chat[0].at("top_logprobs").as_array()[0].at("token"), "b");
}

TEST_F(CompletionTest, LogprobsCanNameTokensByTheirIds) {
  engine.answer_with("éa");
  start();
  const auto plain = post("/v1/completions", R"({"prompt": "a", "logprobs": 1, "return_tokens_as_token_ids": true})")
                         .json()
                         .at("choices")
                         .as_array()[0]
                         .at("logprobs");
  EXPECT_EQ(plain.at("tokens").as_array()[2], "token_id:97");
  EXPECT_TRUE(plain.at("top_logprobs").as_array()[2].as_object().contains("token_id:97"));
  const auto chat = post("/v1/chat/completions",
                         R"({"messages": [{"role": "user", "content": "a"}], "logprobs": true, "return_tokens_as_token_ids": true})")
                        .json()
                        .at("choices")
                        .as_array()[0]
                        .at("logprobs")
                        .at("content")
                        .as_array();
  EXPECT_EQ(chat[2].at("token"), "token_id:97");
  EXPECT_EQ(chat[2].at("bytes").as_array()[0], 'a') << "the bytes do not depend on the token's name";
}

TEST_F(CompletionTest, StreamedLogprobsEqualTheWholeAnswers) {
  engine.answer_with("aé");
  start();
  std::vector<std::string> tokens;
  for (const auto& event : stream_events(post("/v1/completions", R"({"prompt": "a", "logprobs": 0, "stream": true})").body))
    for (const auto& token : event.at("choices").as_array()[0].at("logprobs").at("tokens").as_array())
      tokens.emplace_back(token.as_string());
  EXPECT_EQ(tokens.size(), 4U);  // a, two bytes of é, EOS
}

TEST_F(CompletionTest, ReportsAnEngineErrorWholeAndStreamed) {
  start();
  HttpClient client(port);
  client.send(HttpClient::post_text("/v1/completions", R"({"prompt": "a"})"));
  ASSERT_TRUE(engine.wait_submitted(1));
  engine.end(RequestId{0}, FinishReason::error, "out of luck");
  const auto whole = client.receive();
  EXPECT_EQ(whole.status, 500U);
  EXPECT_NE(whole.error_message().find("out of luck"), std::string::npos);
  client.send(HttpClient::post_text("/v1/completions", R"({"prompt": "a", "stream": true})"));
  ASSERT_TRUE(engine.wait_submitted(2));
  engine.end(RequestId{1}, FinishReason::error, "out of luck");
  EXPECT_NE(client.receive().body.find(R"({"error":{"message":"out of luck)"), std::string::npos);
}

TEST_F(CompletionTest, DisconnectWhileStreamingFreesTheRequests) {
  start();
  HttpClient client(port);
  client.send(HttpClient::post_text("/v1/completions", R"({"prompt": "a", "stream": true, "n": 2})"));
  ASSERT_TRUE(engine.wait_submitted(2));
  ClientResponse head;
  ASSERT_TRUE(client.receive_head(head));
  engine.emit(RequestId{0}, "x");
  std::string chunk;
  ASSERT_TRUE(client.receive_chunk(chunk));
  client.close();  // No write is in flight, so only the pending read can detect the disconnect.
  ASSERT_TRUE(engine.wait_finished(0));
  ASSERT_TRUE(engine.wait_finished(1));
  EXPECT_EQ(engine.at(0).finished, FinishReason::abort);
  engine.emit(RequestId{0}, "late");  // the late output is ignored
  EXPECT_EQ(HttpClient(port).get("/health").status, 200U);
}

TEST_F(CompletionTest, DisconnectWhileWaitingFreesTheRequest) {
  start();
  HttpClient client(port);
  client.send(HttpClient::post_text("/v1/completions", R"({"prompt": "a"})"));
  ASSERT_TRUE(engine.wait_submitted(1));
  client.close();
  ASSERT_TRUE(engine.wait_finished(0));
  EXPECT_EQ(engine.at(0).finished, FinishReason::abort);
}

TEST_F(CompletionTest, DisconnectsAClientThatDoesNotRead) {
  start({.max_stream_buffer_bytes = 8192, .send_buffer_bytes = 4096});
  HttpClient client(port, 4096);
  client.send(HttpClient::post_text("/v1/completions", R"({"prompt": "a", "stream": true})"));
  ASSERT_TRUE(engine.wait_submitted(1));
  const std::string much(20'000, 'x');
  // The test emits step by step: outputs that the server's thread has not taken yet are merged into one.
  for (int i = 0; i < 5000 && !engine.at(0).finished; ++i) {
    engine.emit(RequestId{0}, much);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_TRUE(engine.wait_finished(0));
  EXPECT_EQ(engine.at(0).finished, FinishReason::abort);
  EXPECT_EQ(HttpClient(port).get("/health").status, 200U);
}

TEST_F(CompletionTest, FirstStepMayExceedTheStreamBuffer) {
  start({.max_stream_buffer_bytes = 1024});
  HttpClient client(port);
  const std::string prompt(400, 'p');
  client.send(HttpClient::post_text("/v1/completions", R"({"echo": true, "stream": true, "n": 8, "prompt": ")" + prompt + "\"}"));
  ASSERT_TRUE(engine.wait_submitted(8));
  // One step has eight echoes.
  std::vector<RequestOutput> outputs;
  for (std::uint64_t i = 0; i < 8; ++i) {
    outputs.push_back(last_output_of(RequestId{i}, {'a', kFakeEos}, FinishReason::stop));
    outputs.back().stop_token = kFakeEos;
  }
  engine.at(0).sink->deliver(std::move(outputs));
  const std::string text = streamed_text(stream_events(client.receive().body));
  EXPECT_EQ(text.size(), 8 * (prompt.size() + 1));
}

TEST_F(CompletionTest, LimitsEchoBytesOverAllChoices) {
  engine.answer_with("b");
  start({.max_echo_bytes = 1000});
  const std::string prompt = R"("prompt": ")" + std::string(300, 'p') + '"';
  EXPECT_EQ(post("/v1/completions", R"({"echo": true, "n": 3, )" + prompt + "}").status, 200U);
  EXPECT_EQ(post("/v1/completions", R"({"echo": true, "n": 4, )" + prompt + "}").error_param(), "echo");
}

TEST_F(CompletionTest, StalledWriteTimesOut) {
  start({.send_buffer_bytes = 4096, .write_timeout_ms = 50});
  HttpClient client(port, 4096);
  client.send(HttpClient::post_text("/v1/completions", R"({"prompt": "a", "stream": true})"));
  ASSERT_TRUE(engine.wait_submitted(1));
  engine.emit(RequestId{0}, std::string(200'000, 'x'));
  ASSERT_TRUE(engine.wait_finished(0));
}

TEST_F(CompletionTest, DrainingFinishesRunningAnswersAndRefusesOthers) {
  start();
  HttpClient running(port), idle(port);
  EXPECT_EQ(idle.get("/health").status, 200U);
  running.send(HttpClient::post_text("/v1/completions", R"({"prompt": "a"})"));
  ASSERT_TRUE(engine.wait_submitted(1));
  drain();
  EXPECT_TRUE(idle.at_end());
  EXPECT_FALSE(HttpClient(port).connected());
  engine.emit(RequestId{0}, "done");
  engine.end(RequestId{0}, FinishReason::stop);
  const auto answer = running.receive();
  EXPECT_EQ(answer.json().at("choices").as_array()[0].at("text"), "done");
  EXPECT_EQ(answer.header("Connection"), "close");
  wait_until_ended();
}

TEST_F(CompletionTest, DrainingEndsAtTheTimeout) {
  start({.drain_timeout_ms = 50});
  HttpClient running(port);
  running.send(HttpClient::post_text("/v1/completions", R"({"prompt": "a", "stream": true})"));
  ASSERT_TRUE(engine.wait_submitted(1));
  drain();
  wait_until_ended();
  EXPECT_EQ(engine.at(0).finished, FinishReason::abort);
}

TEST_F(CompletionTest, SecondDrainEndsImmediately) {
  start();
  HttpClient running(port);
  running.send(HttpClient::post_text("/v1/completions", R"({"prompt": "a"})"));
  ASSERT_TRUE(engine.wait_submitted(1));
  drain();
  drain();
  wait_until_ended();
  EXPECT_EQ(engine.at(0).finished, FinishReason::abort);
}

TEST_F(CompletionTest, Http10StreamsWithoutChunks) {
  engine.answer_with("ab");
  start();
  HttpClient client(port);
  const std::string body = R"({"prompt": "a", "stream": true})";
  client.send("POST /v1/completions HTTP/1.0\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  ClientResponse head;
  ASSERT_TRUE(client.receive_head(head));
  EXPECT_EQ(head.header("Transfer-Encoding"), "");
  EXPECT_TRUE(client.at_end());
}

}  // namespace
}  // namespace quire
