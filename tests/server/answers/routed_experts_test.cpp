// Tests the routed experts of an answer's tokens over real sockets: vLLM's field and which answers contain it.
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/base64.h"
#include "server/running_server.h"

namespace quire {
namespace {

class RoutedExpertsHttp : public RunningServer {
 protected:
  RoutedExpertsHttp() { engine.set_experts(2, 1, 300); }

  // Token i has the experts 100 i + 1 and 100 i + 2.
  static std::vector<std::uint16_t> experts_from(std::uint16_t first, std::uint16_t end) {
    std::vector<std::uint16_t> experts;
    for (std::uint16_t i = first; i < end; ++i)
      experts.insert(experts.end(), {static_cast<std::uint16_t>(100 * i + 1), static_cast<std::uint16_t>(100 * i + 2)});
    return experts;
  }
  void answer(std::uint64_t id, const std::string& first, const std::string& last) {
    const auto num_prompt = static_cast<std::uint16_t>(engine.at(id).request.prompt.size());
    RequestOutput begin = output_of(RequestId{id}, bytes_to_tokens(first));
    begin.prompt_experts = std::make_shared<const std::vector<std::uint16_t>>(experts_from(0, num_prompt));
    const auto known = static_cast<std::uint16_t>(num_prompt + first.size() - 1);
    begin.routed_experts = experts_from(num_prompt, known);
    engine.deliver(std::move(begin));
    if (engine.at(id).finished) return;
    RequestOutput end = last_output_of(RequestId{id}, bytes_to_tokens(last), FinishReason::length);
    end.routed_experts = experts_from(known, static_cast<std::uint16_t>(known + last.size()));
    engine.deliver(std::move(end));
  }
  static std::string npy(const std::string& descr, std::size_t tokens, std::size_t layers, const std::string& bytes) {
    std::string dict = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (" + std::to_string(tokens) + ", " +
                       std::to_string(layers) + ", 1), }";
    dict.append(117 - dict.size(), ' ');
    const std::string all = std::string("\x93NUMPY\x01\x00\x76\x00", 10) + dict + "\n" + bytes;
    return base64_of(std::as_bytes(std::span(all)));
  }
  static std::string wide(std::uint16_t first, std::uint16_t end) {
    std::string bytes;
    for (const std::uint16_t expert : experts_from(first, end)) bytes += {static_cast<char>(expert & 0xFF), static_cast<char>(expert >> 8)};
    return bytes;
  }
  static boost::json::value choice_of(HttpClient& client) { return client.receive().json().at("choices").as_array()[0]; }
};

TEST_F(RoutedExpertsHttp, AppearInWholeAnswersInVllmsFormat) {
  start({.enable_return_routed_experts = true});
  HttpClient client(port);
  client.send(HttpClient::post_text("/v1/completions", R"({"prompt": "abc", "max_tokens": 4})"));
  ASSERT_TRUE(engine.wait_submitted(1));
  EXPECT_TRUE(engine.at(0).request.sampling.routed_experts);
  answer(0, "xy", "zw");
  EXPECT_EQ(choice_of(client).at("routed_experts").as_string(), npy("<u2", 6, 2, wide(0, 6)));
  HttpClient chat(port);
  chat.send(HttpClient::post_text("/v1/chat/completions",
                                  R"({"messages": [{"role": "user", "content": "a"}], "routed_experts_prompt_start": 2})"));
  ASSERT_TRUE(engine.wait_submitted(2));
  const auto num_prompt = static_cast<std::uint16_t>(engine.at(1).request.prompt.size());
  answer(1, "x", "y");
  EXPECT_EQ(choice_of(chat).at("routed_experts").as_string(), npy("<u2", num_prompt - 1U, 2, wide(2, num_prompt + 1)));
}

TEST_F(RoutedExpertsHttp, UseOneByteEachWhenThereAreFewExperts) {
  engine.set_experts(1, 1, 256);
  start({.enable_return_routed_experts = true});
  HttpClient client(port);
  client.send(HttpClient::post_text("/v1/completions", R"({"prompt": "a", "max_tokens": 1})"));
  ASSERT_TRUE(engine.wait_submitted(1));
  RequestOutput output = last_output_of(RequestId{0}, {'z'}, FinishReason::length);
  output.prompt_experts = std::make_shared<const std::vector<std::uint16_t>>(std::vector<std::uint16_t>{255});
  engine.deliver(std::move(output));
  EXPECT_EQ(choice_of(client).at("routed_experts").as_string(), npy("|u1", 1, 1, "\xFF"));
}

// The engine may have produced more tokens by the time the stop string is found.
TEST_F(RoutedExpertsHttp, EndAtTheTokenBeforeAStopString) {
  start({.enable_return_routed_experts = true});
  HttpClient client(port);
  client.send(HttpClient::post_text("/v1/completions", R"({"prompt": "abc", "stop": "y"})"));
  ASSERT_TRUE(engine.wait_submitted(1));
  answer(0, "xyzw", "");
  const auto choice = choice_of(client);
  EXPECT_EQ(choice.at("text"), "x");
  EXPECT_EQ(choice.at("routed_experts").as_string(), npy("<u2", 4, 2, wide(0, 4)));
}

TEST_F(RoutedExpertsHttp, AreNullWhenNothingWasComputed) {
  start({.enable_return_routed_experts = true});
  HttpClient client(port);
  client.send(HttpClient::post_text("/v1/completions", R"({"prompt": "abc"})"));
  ASSERT_TRUE(engine.wait_submitted(1));
  engine.deliver(last_output_of(RequestId{0}, {}, FinishReason::abort));
  EXPECT_TRUE(choice_of(client).at("routed_experts").is_null());
}

TEST_F(RoutedExpertsHttp, AreNotRequestedForStreamsResponsesOrClientsThatDecline) {
  engine.answer_with("x");
  start({.enable_return_routed_experts = true});
  const auto declined = post("/v1/completions", R"({"prompt": "abc", "return_routed_experts": false})");
  EXPECT_FALSE(declined.json().at("choices").as_array()[0].as_object().contains("routed_experts"));
  post("/v1/completions", R"({"prompt": "abc", "stream": true})");
  post("/v1/responses", R"({"input": "abc"})");
  post("/v1/messages", R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 3, "model": "bytes"})");
  ASSERT_TRUE(engine.wait_submitted(4));
  for (std::size_t i = 0; i < 4; ++i) EXPECT_FALSE(engine.at(i).request.sampling.routed_experts) << i;
}

TEST_F(RoutedExpertsHttp, AreRefusedWhenTooLargeOrStreamed) {
  engine.answer_with("x");
  start({.enable_return_routed_experts = true, .max_routed_experts = 20});
  const std::string prompt = R"({"prompt": "0123456789", "return_routed_experts": true)";
  EXPECT_EQ(post("/v1/completions", prompt + "}").status, 200U);
  EXPECT_EQ(post("/v1/completions", prompt + R"(, "n": 2})").error_param(), "return_routed_experts");
  EXPECT_EQ(post("/v1/completions", prompt + R"(, "stream": true})").error_param(), "return_routed_experts");
  EXPECT_EQ(post("/v1/completions", prompt + R"(, "use_beam_search": true})").error_param(), "return_routed_experts");
  EXPECT_EQ(post("/v1/completions", prompt + R"(, "routed_experts_prompt_start": 10})").error_param(), "routed_experts_prompt_start");
  EXPECT_EQ(post("/v1/completions", prompt + R"(, "routed_experts_prompt_start": -1})").error_param(), "routed_experts_prompt_start");
  EXPECT_EQ(post("/v1/completions", R"({"prompt": "a", "return_routed_experts": false, "routed_experts_prompt_start": 1})").error_param(),
            "routed_experts_prompt_start");
}

TEST_F(RoutedExpertsHttp, AreAbsentWithoutTheFlag) {
  engine.answer_with("x");
  start();
  EXPECT_FALSE(post("/v1/completions", R"({"prompt": "abc"})").json().at("choices").as_array()[0].as_object().contains("routed_experts"));
  EXPECT_FALSE(engine.at(0).request.sampling.routed_experts);
  EXPECT_EQ(post("/v1/completions", R"({"prompt": "abc", "return_routed_experts": true})").error_param(), "return_routed_experts");
}

TEST(RoutedExpertsServer, DoesNotStartWithAModelWithoutExperts) {
  FakeEngine engine;
  Logger logger(LogOptions{.level = LogLevel::off});
  const auto server = Server::create(engine, {.port = 0, .enable_return_routed_experts = true}, logger);
  ASSERT_FALSE(server.has_value());
  EXPECT_EQ(server.error().field, "enable_return_routed_experts");
}

}  // namespace
}  // namespace quire
