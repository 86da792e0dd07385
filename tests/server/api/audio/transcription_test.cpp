// Tests transcriptions over real sockets, with an engine that generates what the test gives it.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "server/api/audio/speech_model.h"
#include "server/api/audio/transcription_server.h"
#include "server/api/audio/window_scores.h"

namespace quire {
namespace {

TEST_F(TranscriptionTest, ShortAudioIsOneRequestAfterLanguageDetection) {
  generate(" Hello.");
  start();
  const auto response = transcribe(2.0);
  EXPECT_EQ(response.status, 200U) << response.body;
  EXPECT_EQ(response.json().at("text"), "Hello.");
  EXPECT_EQ(response.json().at("usage").at("seconds"), 2);
  ASSERT_EQ(engine.num_submitted(), 1U);
  const EngineRequest heard = engine.at(0).request;
  EXPECT_EQ(heard.prompt, std::vector<TokenId>{kSpeechStart});
  const std::vector<std::vector<TokenId>> begins = {{kSpeechEnglish, kSpeechGerman}, {kSpeechTranscribe}, {kSpeechNoTimes}};
  EXPECT_EQ(heard.sampling.timestamps.begins, begins);
  ASSERT_NE(heard.encoder_input, nullptr);
  EXPECT_EQ(heard.encoder_input->features.size(), 3000U * 80);
  EXPECT_EQ(heard.sampling.temperature, 0.0F);
  EXPECT_FALSE(heard.sampling.timestamps.has_timestamps);
  EXPECT_EQ(heard.sampling.timestamps.not_first, (std::vector<TokenId>{32, kSpeechEnd}));
  EXPECT_EQ(heard.sampling.bad_words.front(), std::vector<TokenId>{65});
}

TEST_F(TranscriptionTest, ReportsTheDetectedLanguage) {
  generate(" Ja.");
  start();
  EXPECT_EQ(transcribe(1.0, field("response_format", "verbose_json")).json().at("language"), "de");
}

TEST_F(TranscriptionTest, BuildsThePromptFromTheFields) {
  generate("x");
  start();
  EXPECT_EQ(transcribe(1.0, field("language", "en") + field("prompt", " ab") + field("temperature", "0.5")).status, 200U);
  const EngineRequest heard = engine.at(0).request;
  EXPECT_EQ(heard.prompt,
            (std::vector<TokenId>{kSpeechPrevious, ' ', 'a', 'b', kSpeechStart, kSpeechEnglish, kSpeechTranscribe, kSpeechNoTimes}));
  EXPECT_EQ(heard.sampling.temperature, 0.5F);
  EXPECT_EQ(transcribe(1.0, field("language", "de"), "/v1/audio/translations").status, 200U);
  EXPECT_EQ(engine.at(1).request.prompt, (std::vector<TokenId>{kSpeechStart, kSpeechGerman, kSpeechTranslate, kSpeechNoTimes}));
}

// The second window begins where the last complete segment ends.
TEST_F(TranscriptionTest, TranscribesLongAudioWindowByWindow) {
  engine.speak_with([round = 0](const EngineRequest&) mutable {
    std::vector<TokenId> tokens = {time_token(0)};
    if (round++ == 0) {
      say(tokens, " One.");
      tokens.insert(tokens.end(), {time_token(1000), time_token(1000)});  // 20 s
      say(tokens, " Tw");
    } else {
      say(tokens, " Two.");
      tokens.push_back(time_token(500));
    }
    return tokens;
  });
  start();
  const auto answer = transcribe(40.0, field("language", "en") + field("response_format", "verbose_json")).json();
  EXPECT_EQ(answer.at("text"), "One. Two.");
  ASSERT_EQ(answer.at("segments").as_array().size(), 2U);
  EXPECT_EQ(answer.at("segments").at(0).at("end"), 20.0);
  EXPECT_EQ(answer.at("segments").at(1).at("start"), 20.0);
  EXPECT_EQ(answer.at("segments").at(1).at("end"), 30.0);
  EXPECT_EQ(answer.at("segments").at(1).at("seek"), 2000);
  EXPECT_EQ(engine.num_submitted(), 2U);
  EXPECT_TRUE(engine.at(0).request.sampling.timestamps.has_timestamps);
}

// Generates a stuttering text below this temperature.
void stutter_below(FakeEngine& engine, float temperature) {
  engine.speak_with([temperature](const EngineRequest& request) {
    std::vector<TokenId> tokens;
    if (request.sampling.timestamps.has_timestamps) tokens.push_back(time_token(0));
    for (int i = 0; i < (request.sampling.temperature < temperature ? 40 : 1); ++i) say(tokens, " Ja.");
    if (request.sampling.timestamps.has_timestamps) tokens.push_back(time_token(100));
    tokens.push_back(kSpeechEnd);
    return tokens;
  });
}

TEST_F(TranscriptionTest, RetriesARepetitiveTextAtHigherTemperature) {
  if (!compression_ratio("a")) GTEST_SKIP() << "this build has no zlib";
  stutter_below(engine, 0.35F);
  start();
  const std::string english = field("language", "en");
  const auto answer = transcribe(2.0, english + field("response_format", "verbose_json")).json();
  EXPECT_EQ(answer.at("text"), "Ja.");
  EXPECT_EQ(answer.at("segments").at(0).at("temperature"), 0.4);
  EXPECT_LT(answer.at("segments").at(0).at("compression_ratio").as_double(), 1.0);
  ASSERT_EQ(engine.num_submitted(), 3U);
  EXPECT_FALSE(engine.at(0).request.sampling.seed.has_value());
  for (std::size_t i = 1; i < 3; ++i) {
    EXPECT_FLOAT_EQ(engine.at(i).request.sampling.temperature, 0.2F * static_cast<float>(i));
    EXPECT_EQ(engine.at(i).request.sampling.seed, 0U) << "the seed must be the same each time";
    EXPECT_EQ(engine.at(i).request.encoder_input, engine.at(0).request.encoder_input);
  }
  // A text without timestamps is also retried, unless it was already streamed or the client disables it.
  EXPECT_EQ(transcribe(2.0, english).json().at("text"), "Ja.");
  EXPECT_EQ(engine.num_submitted(), 6U);
  for (const std::string& once : {field("stream", "true"), field("temperature", "0.1"), field("temperature_increment_on_fallback", "0"),
                                  field("compression_ratio_threshold", "100")}) {
    const std::size_t before = engine.num_submitted();
    EXPECT_EQ(transcribe(2.0, english + once).status, 200U);
    EXPECT_EQ(engine.num_submitted(), before + 1) << once;
  }
}

// A text that was sampled at a high temperature does not become the next window's prompt.
TEST_F(TranscriptionTest, PromptsAWindowWithTheTextBeforeIt) {
  generate_segments();
  start();
  const auto prompts = [&](const std::string& more) {
    const std::size_t first = engine.num_submitted();
    EXPECT_EQ(transcribe(40.0, field("language", "en") + field("prompt", "ab") + more).status, 200U);
    std::vector<std::vector<TokenId>> all;
    for (std::size_t i = first; i < engine.num_submitted(); ++i) {
      std::vector<TokenId> prompt = engine.at(i).request.prompt;
      const auto begin = std::ranges::find(prompt, kSpeechStart);
      all.emplace_back(prompt.begin(), begin);
    }
    return all;
  };
  using Prompts = std::vector<std::vector<TokenId>>;
  const std::vector<TokenId> given = {kSpeechPrevious, ' ', 'a', 'b'};
  std::vector<TokenId> both = given;
  both.push_back(time_token(0));
  say(both, " One.");
  both.push_back(time_token(1500));
  EXPECT_EQ(prompts(""), (Prompts{given, both}));
  EXPECT_EQ(prompts(field("condition_on_previous_text", "false")), (Prompts{given, {}}));
  EXPECT_EQ(prompts(field("carry_initial_prompt", "true")), (Prompts{given, both}));
  EXPECT_EQ(prompts(field("carry_initial_prompt", "true") + field("condition_on_previous_text", "false")), (Prompts{given, given}));
  EXPECT_EQ(prompts(field("temperature", "0.6")), (Prompts{given, {}}));
}

// openai-whisper gives a window at most half of the context less one token.
TEST_F(TranscriptionTest, ConditionsAWindowOnTheLastTokensBeforeIt) {
  engine.speak_with([](const EngineRequest&) {
    std::vector<TokenId> tokens = {time_token(0)};
    say(tokens, std::string(300, 'a') + "b");
    tokens.push_back(time_token(1500));
    return tokens;
  });
  start();
  EXPECT_EQ(transcribe(40.0, field("language", "en") + field("compression_ratio_threshold", "1000")).status, 200U);
  ASSERT_EQ(engine.num_submitted(), 2U);
  std::vector<TokenId> expected = {kSpeechPrevious};
  say(expected, std::string(221, 'a') + "b");
  expected.insert(expected.end(), {time_token(1500), kSpeechStart, kSpeechEnglish, kSpeechTranscribe});
  EXPECT_EQ(engine.at(1).request.prompt, expected) << "223 of 448 tokens";
}

TEST_F(TranscriptionTest, StreamsTheTextAsItIsGenerated) {
  generate(" Hi.");
  start();
  const auto response = transcribe(1.0, field("language", "en") + field("stream", "true"));
  EXPECT_EQ(response.header("Content-Type"), "text/event-stream; charset=utf-8");
  EXPECT_NE(response.body.find(R"(data: {"type":"transcript.text.delta","delta":" "})"), std::string::npos) << response.body;
  EXPECT_NE(response.body.find(R"(data: {"type":"transcript.text.done","text":"Hi.",)"), std::string::npos) << response.body;
  EXPECT_TRUE(response.body.ends_with("data: [DONE]\n\n"));
  EXPECT_EQ(response.body.find(R"("delta":"")"), std::string::npos) << response.body;
}

TEST_F(TranscriptionTest, StreamEndsWithTheReplacementOfAnIncompleteCharacter) {
  generate(" Hi\xE2\x82");
  start();
  const std::string body = transcribe(1.0, field("language", "en") + field("stream", "true")).body;
  const std::string replaced =
      "data: {\"type\":\"transcript.text.delta\",\"delta\":\"\xEF\xBF\xBD\"}\n\ndata: {\"type\":\"transcript.text.done\"";
  EXPECT_NE(body.find(replaced), std::string::npos) << body;
}

TEST_F(TranscriptionTest, NamesTheInvalidField) {
  generate("x");
  ServerOptions options;
  options.max_audio_seconds = 60;
  start(options);
  const auto refused = [&](const std::string& parts, unsigned status, const std::string& param) {
    const auto response = send_form(parts);
    EXPECT_EQ(response.status, status) << response.body;
    EXPECT_EQ(response.json().at("error").at("param").as_string(), param) << response.body;
  };
  const std::string file = field("file", recording(0.5));
  refused(field("model", "ears"), 400, "file");
  refused(field("file", ""), 400, "file");
  refused(field("file", "no sound at all, but a text"), 400, "file");
  refused(field("file", recording(61)), 413, "file");
  refused(file + file, 400, "file");
  refused(file + field("model", "others"), 404, "model");
  refused(file + field("language", "xx"), 400, "language");
  refused(file + field("response_format", "xml"), 400, "response_format");
  refused(file + field("timestamp_granularities[]", "word"), 400, "timestamp_granularities");
  refused(file + field("stream", "true") + field("response_format", "srt"), 400, "stream");
  refused(file + field("temperature", "warm"), 400, "temperature");
  refused(file + field("temperature", "9"), 400, "temperature");
  refused(file + field("prompt", std::string(20'000, 'p')), 400, "prompt");
  EXPECT_EQ(engine.num_submitted(), 0U);
  EXPECT_EQ(post("/v1/audio/transcriptions", "{}").status, 415U);
  EXPECT_EQ(transcribe(0.5, field("language", "en") + field("stray", "1")).header("X-Quire-Ignored-Fields"), "stray");
}

TEST_F(TranscriptionTest, OmitsLanguageAndTaskForEnglishModels) {
  engine.set_model(speech_model(false));
  generate(" A.");
  start();
  EXPECT_EQ(transcribe(1.0).json().at("text"), "A.");
  EXPECT_EQ(engine.at(0).request.prompt, (std::vector<TokenId>{kSpeechStart, kSpeechNoTimes}));
  EXPECT_EQ(transcribe(1.0, {}, "/v1/audio/translations").status, 400U);
  EXPECT_EQ(transcribe(1.0, field("language", "de")).status, 400U);
}

TEST_F(TranscriptionTest, AbortsTheRequestWhenTheClientDisconnects) {
  start();
  {
    HttpClient client(port);
    send_form_on(client, field("file", recording(1.0)) + field("language", "en"));
    ASSERT_TRUE(engine.wait_submitted(1));
  }
  EXPECT_TRUE(engine.wait_finished(0));
}

TEST_F(TranscriptionTest, RefusesModelsWithoutAudio) {
  engine.set_model(byte_model());
  start();
  const auto response = transcribe(1.0);
  EXPECT_EQ(response.status, 400U);
  EXPECT_NE(response.body.find("does not support audio"), std::string::npos) << response.body;
}

}  // namespace
}  // namespace quire
