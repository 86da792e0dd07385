// Tests the counts and the order of choices in answers with several prompts and choices, and what a fork takes from its parent.
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <string>
#include <utility>

#include "server/running_server.h"

namespace quire {
namespace {

namespace json = boost::json;

class CompletionChoices : public RunningServer {
 protected:
  void emit_with_logprob(std::uint64_t id, const std::string& text, float logprob) {
    RequestOutput output = output_of(RequestId{id}, bytes_to_tokens(text));
    for (const TokenId token : output.tokens) output.logprobs.push_back({.entries = {{token, logprob, 1}}});
    engine.deliver(std::move(output));
  }
  static std::string texts_of(const json::value& answer) {
    std::string texts;
    for (const json::value& choice : answer.at("choices").as_array())
      texts += json::serialize(choice.at("index")) + std::string(choice.at("text").as_string()) + " ";
    return texts;
  }
};

TEST_F(CompletionChoices, UsageCountsEachPromptOnceAndEachChoice) {
  engine.answer_with("hi");
  start();
  const json::value answer = post("/v1/completions", R"({"prompt":["ab","cde"],"n":2,"max_tokens":9})").json();
  EXPECT_EQ(answer.at("usage").at("prompt_tokens"), 5);
  EXPECT_EQ(answer.at("usage").at("completion_tokens"), 12) << "two tokens and the end in each of four choices";
  EXPECT_EQ(answer.at("usage").at("total_tokens"), 17);
  EXPECT_EQ(answer.at("usage").at("prompt_tokens_details").at("cached_tokens"), 32) << "16 of each prompt";
  EXPECT_EQ(texts_of(answer), "0hi 1hi 2hi 3hi ");
  const json::value echoed = post("/v1/completions", R"({"prompt":"ab","max_tokens":0,"echo":true})").json();
  EXPECT_EQ(echoed.at("usage").at("completion_tokens"), 0) << "the sampled token is not reported";
  EXPECT_EQ(texts_of(echoed), "0ab ");
}

TEST_F(CompletionChoices, EquallyLikelyChoicesKeepTheirOrder) {
  start();
  HttpClient client(port);
  client.send_post("/v1/completions", R"({"prompt":["x","y"],"n":2,"best_of":3,"max_tokens":9})");
  ASSERT_TRUE(engine.wait_submitted(6));
  EXPECT_EQ(engine.at(0).request.sampling.logprobs, 0U) << "the likeliest choices are found by their log probabilities";
  const std::pair<const char*, float> choices[] = {{"a", -2.0F}, {"b", -1.0F}, {"c", -1.0F}, {"d", -0.5F}, {"ee", -0.4F}, {"f", -0.6F}};
  for (std::uint64_t id = 0; id < 6; ++id) {
    emit_with_logprob(id, choices[id].first, choices[id].second);
    engine.end(RequestId{id}, FinishReason::length);
  }
  EXPECT_EQ(texts_of(client.receive().json()), "0b 1c 2ee 3d ") << "the mean counts, not the sum";
}

TEST_F(CompletionChoices, ForkTakesThePromptOfItsChoice) {
  start();
  HttpClient parent(port), child(port);
  parent.send_post("/v1/completions", R"({"prompt":["ab","cde"],"n":2,"stream":true,"return_token_ids":true,"max_tokens":9})",
                   "X-Request-Id: s\r\n");
  ASSERT_TRUE(engine.wait_submitted(4));
  child.send_post("/v1/requests/cmpl-s/fork", R"({"choice":2,"n":1})");
  ASSERT_TRUE(engine.wait_submitted(5));
  EXPECT_EQ(tokens_to_bytes(engine.at(4).request.prompt), "cde");
  engine.emit(RequestId{4}, "x");
  engine.end(RequestId{4}, FinishReason::stop);
  const ClientResponse response = child.receive();
  ASSERT_EQ(response.status, 200U) << response.body;
  const json::value answer = response.json();
  EXPECT_EQ(answer.at("usage").at("prompt_tokens"), 3);
  EXPECT_EQ(answer.at("usage").at("completion_tokens"), 2);
  EXPECT_EQ(answer.at("choices").as_array()[0].at("prompt_token_ids"), json::parse("[99,100,101]"));
  EXPECT_EQ(answer.at("choices").as_array()[0].at("token_ids"), json::parse("[120,256]"));
  EXPECT_EQ(texts_of(answer), "0x ");
}

TEST_F(CompletionChoices, StreamedOffsetsContinueInTheChoicesText) {
  start();
  HttpClient client(port);
  client.send_post("/v1/completions", R"({"prompt":"x","n":2,"stream":true,"logprobs":0,"max_tokens":9})");
  ClientResponse head;
  ASSERT_TRUE(client.receive_head(head));
  ASSERT_TRUE(engine.wait_submitted(2));
  // Each step is received before the next one, because outputs that wait for the server's thread are merged.
  const auto offsets_after = [&](std::uint64_t id, const std::string& text) {
    emit_with_logprob(id, text, -1.0F);
    std::string chunk;
    EXPECT_TRUE(client.receive_chunk(chunk));
    return json::serialize(stream_events(chunk + "data: [DONE]\n\n").at(0).at("choices").at(0).at("logprobs").at("text_offset"));
  };
  EXPECT_EQ(offsets_after(0, "ab"), "[0,1]");
  EXPECT_EQ(offsets_after(1, "c"), "[0]") << "each choice has its own offsets";
  EXPECT_EQ(offsets_after(0, "\xC3\xA9"), "[2,3]") << "the two bytes of a character are two replaced characters in `tokens`";
  EXPECT_EQ(offsets_after(0, "d"), "[3]") << "the text before it has three characters";
  EXPECT_EQ(offsets_after(1, "e"), "[1]");
}

TEST_F(CompletionChoices, StopStringAndStopTokenAreNamed) {
  start();
  const auto ended = [&](const std::string& fields, const std::string& text, bool by_engine) {
    const std::size_t count = engine.num_submitted();
    HttpClient client(port);
    client.send_post("/v1/completions", R"({"prompt":"x","max_tokens":9,)" + fields + "}");
    EXPECT_TRUE(engine.wait_submitted(count + 1));
    RequestOutput output = output_of(RequestId{count}, bytes_to_tokens(text));
    if (by_engine) {
      output.finished = true;
      output.reason = FinishReason::stop;
      output.stop_token = output.tokens.back();
    }
    engine.deliver(std::move(output));
    const json::value answer = client.receive().json();
    const json::value& choice = answer.at("choices").as_array()[0];
    if (!by_engine) {
      EXPECT_TRUE(engine.wait_finished(count));
      EXPECT_EQ(engine.at(count).finished, FinishReason::stop) << "the engine is told";
    }
    return std::string(choice.at("text").as_string()) + " " + json::serialize(choice.at("stop_reason")) + " " +
           json::serialize(answer.at("usage").at("completion_tokens"));
  };
  EXPECT_EQ(ended(R"("stop":["q","c"])", "abcd", false), R"(ab "c" 3)") << "tokens after the stop string do not count";
  EXPECT_EQ(ended(R"("stop":"c","include_stop_str_in_output":true)", "abcd", false), R"(abc "c" 3)");
  EXPECT_EQ(ended(R"("stop_token_ids":[99])", "abc", true), "ab 99 3");
  EXPECT_EQ(ended(R"("stop_token_ids":[99],"include_stop_str_in_output":true)", "abc", true), "abc 99 3");
  EXPECT_EQ(ended(R"("stop_token_ids":[99],"stop":"b")", "abc", true), R"(a "b" 2)") << "the string came first";
}

}  // namespace
}  // namespace quire
