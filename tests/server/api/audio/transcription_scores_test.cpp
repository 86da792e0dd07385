// Tests the scores of transcribed windows, what the scores decide, and transcriptions that fail.
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/api/audio/transcription_server.h"

namespace quire {
namespace {

// A model whose first output reports the probability that nothing is said.
ModelInfo model_with_silence() {
  ModelInfo info = speech_model();
  TokenizerSpec spec = *info.tokenizer;
  spec.tokens[kSpeechPrevious] = "<|nospeech|>";
  info.tokenizer = std::make_shared<const TokenizerSpec>(std::move(spec));
  return info;
}

class ScoredTranscription : public TranscriptionTest {
 protected:
  static constexpr TokenId kNoSpeech = kSpeechPrevious;

  void SetUp() override {
    TranscriptionTest::SetUp();
    engine.set_model(model_with_silence());
  }
  // Requests verbose_json, in which each segment has its scores.
  void ask(HttpClient& client, const std::string& more = field("language", "en")) {
    send_form_on(client, field("file", recording(2.0)) + field("response_format", "verbose_json") + more);
  }
  // Ends the request with " Hi." between two timestamps. `begins`: tokens before the text.
  void say_hi(std::size_t request, float logprob, std::optional<float> no_speech, const std::vector<TokenId>& begins = {}) {
    RequestOutput output = last_output_of(RequestId{request}, begins, FinishReason::stop);
    for (std::size_t i = 0; i < begins.size(); ++i) output.logprobs.push_back({.entries = {{begins[i], -100.0F, 1}}});
    std::vector<TokenId> tokens = {time_token(0)};
    say(tokens, " Hi.");
    tokens.insert(tokens.end(), {time_token(100), kSpeechEnd});
    for (const TokenId token : tokens) {
      output.tokens.push_back(token);
      output.logprobs.push_back({.entries = {{token, logprob, 1}}});
    }
    if (no_speech) output.logprobs.front().entries.push_back({kNoSpeech, std::log(*no_speech), 2});
    engine.deliver(std::move(output));
  }
};

TEST_F(ScoredTranscription, SegmentsHaveTheMeanLogProbabilityOfTheirWindow) {
  start();
  HttpClient client(port);
  ask(client);
  ASSERT_TRUE(engine.wait_submitted(1));
  say_hi(0, -0.5F, 0.25F);
  const auto answer = client.receive().json();
  EXPECT_EQ(answer.at("text"), "Hi.");
  EXPECT_EQ(answer.at("segments").at(0).at("avg_logprob"), -0.5) << "over six tokens and the end";
  EXPECT_NEAR(answer.at("segments").at(0).at("no_speech_prob").as_double(), 0.25, 1e-6);
  // The tokens of a detected language are no part of the text.
  ask(client, "");
  ASSERT_TRUE(engine.wait_submitted(2));
  say_hi(1, -0.5F, {}, {kSpeechGerman, kSpeechTranscribe});
  const auto detected = client.receive().json();
  EXPECT_EQ(detected.at("language"), "de");
  EXPECT_EQ(detected.at("segments").at(0).at("avg_logprob"), -0.5);
  EXPECT_TRUE(detected.at("segments").at(0).at("no_speech_prob").is_null());
}

TEST_F(ScoredTranscription, UnlikelyTextIsTriedAgainAndScoredFromTheBeginning) {
  start();
  HttpClient client(port);
  ask(client);
  ASSERT_TRUE(engine.wait_submitted(1));
  say_hi(0, -2.0F, 0.25F);
  ASSERT_TRUE(engine.wait_submitted(2));
  EXPECT_FLOAT_EQ(engine.at(1).request.sampling.temperature, 0.2F);
  say_hi(1, -0.5F, {});
  const auto answer = client.receive().json();
  ASSERT_EQ(answer.at("segments").as_array().size(), 1U) << "the first attempt is dropped";
  EXPECT_EQ(answer.at("segments").at(0).at("avg_logprob"), -0.5);
  EXPECT_EQ(answer.at("segments").at(0).at("temperature"), 0.2);
  EXPECT_TRUE(answer.at("segments").at(0).at("no_speech_prob").is_null()) << "the second attempt did not report it";
}

TEST_F(ScoredTranscription, SilenceIsLeftOutAndNotTriedAgain) {
  start();
  HttpClient client(port);
  ask(client);
  ASSERT_TRUE(engine.wait_submitted(1));
  say_hi(0, -2.0F, 0.7F);
  const auto answer = client.receive().json();
  EXPECT_EQ(answer.at("text"), "");
  EXPECT_TRUE(answer.at("segments").as_array().empty());
  EXPECT_EQ(engine.num_submitted(), 1U);
}

TEST_F(TranscriptionTest, ReportsWhyTheEngineFailed) {
  start();
  HttpClient client(port);
  const auto failed = [&](FinishReason reason, const std::string& error) {
    const std::size_t count = engine.num_submitted();
    send_form_on(client, field("file", recording(1.0)) + field("language", "en"));
    EXPECT_TRUE(engine.wait_submitted(count + 1));
    engine.end(RequestId{count}, reason, error);
    const ClientResponse response = client.receive();
    return std::to_string(response.status) + " " + response.error_message();
  };
  EXPECT_EQ(failed(FinishReason::error, "out of luck"), "500 out of luck; try again");
  EXPECT_EQ(failed(FinishReason::error, ""), "500 the engine failed; try again");
  EXPECT_EQ(failed(FinishReason::abort, ""), "503 the engine aborted the request; send the request again");
  engine.refuse_with(Error{ErrorCode::overloaded, "", "the queue is full", "try again later"});
  EXPECT_EQ(transcribe(1.0, field("language", "en")).status, 429U);
}

TEST_F(TranscriptionTest, RefusalOfALaterWindowIsTheAnswer) {
  generate_segments();
  start();
  engine.refuse_with(Error{ErrorCode::overloaded, "", "the queue is full", "try again later"}, 1);
  const ClientResponse refused = transcribe(40.0, field("language", "en"));
  EXPECT_EQ(refused.status, 429U) << refused.body;
  EXPECT_EQ(engine.num_submitted(), 1U);
}

TEST_F(TranscriptionTest, StreamThatHasBegunEndsWithItsError) {
  start();
  HttpClient client(port);
  send_form_on(client, field("file", recording(1.0)) + field("language", "en") + field("stream", "true"));
  ASSERT_TRUE(engine.wait_submitted(1));
  engine.emit(RequestId{0}, " Hi");
  ClientResponse response;
  ASSERT_TRUE(client.receive_head(response));
  EXPECT_EQ(response.status, 200U);
  ASSERT_TRUE(client.receive_chunk(response.body));
  EXPECT_NE(response.body.find(R"("delta":"H")"), std::string::npos) << response.body;
  engine.end(RequestId{0}, FinishReason::error, "out of luck");
  response.body.clear();
  while (client.receive_chunk(response.body)) {
  }
  EXPECT_TRUE(response.body.starts_with(R"(data: {"error":{"message":"out of luck)")) << response.body;
  EXPECT_TRUE(response.body.ends_with("\n\ndata: [DONE]\n\n"));
}

}  // namespace
}  // namespace quire
