// Tests beam searches over real sockets, with an engine that the test drives by hand.
#include <string>

#include "server/running_server.h"

namespace quire {
namespace {

using BeamSearchHttp = RunningServer;

constexpr const char* kMessages = R"("messages": [{"role": "user", "content": "a"}], )";

TEST_F(BeamSearchHttp, ReturnsBeamsAsChoicesBestFirst) {
  start();
  HttpClient client(port);
  client.send(HttpClient::post_text("/v1/completions", R"({"prompt": "abc", "n": 3, "use_beam_search": true, "length_penalty": 0.5,
      "temperature": 0, "max_tokens": 4, "ignore_eos": false, "include_stop_str_in_output": true, "logprobs": 1})"));
  ASSERT_TRUE(engine.wait_submitted(3));
  const EngineRequest request = engine.at(0).request;
  ASSERT_TRUE(request.beam_search.has_value());
  EXPECT_EQ(request.beam_search.value_or(BeamSearchOptions{0.0}).length_penalty, 0.5);
  EXPECT_EQ(request.sampling.max_tokens, 4U);
  for (std::uint64_t i = 0; i < 3; ++i) {
    const bool by_eos = i == 1;
    RequestOutput output = last_output_of(RequestId{i}, bytes_to_tokens(std::string("x") + static_cast<char>('a' + i)),
                                          by_eos ? FinishReason::stop : FinishReason::length);
    if (by_eos) output.tokens.push_back(output.stop_token = kFakeEos);
    for (const TokenId token : output.tokens) output.logprobs.push_back({{{token, -0.5F, 1}, {token, -0.5F, 1}}});
    engine.deliver(std::move(output));
  }
  const auto answer = client.receive().json();
  const auto& choices = answer.at("choices").as_array();
  ASSERT_EQ(choices.size(), 3U);
  const char* const texts[] = {"xa", "xb", "xc"};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(choices[i].at("index"), i);
    EXPECT_EQ(choices[i].at("text"), texts[i]) << "the text must not contain EOS";
    EXPECT_EQ(choices[i].at("finish_reason"), i == 1 ? "stop" : "length");
    EXPECT_EQ(choices[i].at("logprobs").at("token_logprobs").as_array().size(), i == 1 ? 3U : 2U);
  }
  EXPECT_EQ(choices[1].at("stop_reason"), kFakeEos);
  EXPECT_TRUE(choices[0].at("stop_reason").is_null());
  EXPECT_EQ(answer.at("usage").at("prompt_tokens"), 3);
}

TEST_F(BeamSearchHttp, AlsoServesChatRequests) {
  start();
  HttpClient client(port);
  client.send(HttpClient::post_text("/v1/chat/completions", std::string("{") + kMessages + R"("n": 2, "use_beam_search": true})"));
  ASSERT_TRUE(engine.wait_submitted(2));
  EXPECT_EQ(engine.at(0).request.beam_search.value_or(BeamSearchOptions{0.0}).length_penalty, 1.0);
  for (std::uint64_t i = 0; i < 2; ++i) engine.deliver(last_output_of(RequestId{i}, bytes_to_tokens("y"), FinishReason::length));
  EXPECT_EQ(client.receive().json().at("choices").as_array()[1].at("message").at("content"), "y");
}

TEST_F(BeamSearchHttp, RefusesUnsupportedFields) {
  start();
  const auto field = [&](const std::string& fields) {
    const auto answer = post("/v1/chat/completions", std::string("{") + kMessages + R"("use_beam_search": true, )" + fields + "}");
    EXPECT_EQ(answer.status, 400U) << fields;
    return answer.error_param();
  };
  EXPECT_EQ(field(R"("stream": true)"), "stream");
  EXPECT_EQ(field(R"("stop": "x")"), "stop");
  EXPECT_EQ(field(R"("length_penalty": "long")"), "length_penalty");
  EXPECT_EQ(post("/v1/completions", R"({"prompt": "p", "n": 2, "best_of": 3, "use_beam_search": true})").error_param(), "best_of");
  EXPECT_EQ(post("/v1/completions", R"({"prompt": "p", "length_penalty": 0.5})").error_param(), "length_penalty") << "requires a search";
  EXPECT_EQ(post("/v1/completions", R"({"prompt": "p", "use_beam_search": 1})").error_param(), "use_beam_search");
  EXPECT_EQ(engine.num_submitted(), 0U);
}

TEST_F(BeamSearchHttp, RefusesToForkABeamSearch) {
  start();
  HttpClient client(port);
  client.send(HttpClient::post_text("/v1/completions", R"({"prompt": "abc", "use_beam_search": true})", "X-Request-Id: mine\r\n"));
  ASSERT_TRUE(engine.wait_submitted(1));
  EXPECT_EQ(post("/v1/requests/cmpl-mine/fork", "{}").status, 400U);
  engine.end(RequestId{0}, FinishReason::stop);
  EXPECT_EQ(client.receive().status, 200U);
}

}  // namespace
}  // namespace quire
