// Tests errors and values of the forms for transcriptions, and prompt and sampling of their windows.
#include "server/api/audio/transcription_request.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "server/api/audio/transcription_forms.h"

namespace quire {
namespace {

TEST_F(TranscriptionForms, ErrorsNameTheFieldTheProblemAndTheFix) {
  EXPECT_EQ(read(part("model", "ears")).error().to_string(), "file: is missing; send one audio file");
  EXPECT_EQ(read(part("file", "f") + part("file", "f")).error().to_string(), "file: is given more than once; send one audio file");
  EXPECT_EQ(read(part("file", "")).error().to_string(), "file: is empty; send an audio file");
  EXPECT_EQ(read(part("file", "f") + part("language", "en") + part("language", "en")).error().to_string(),
            "language: is given more than once; send it once");
  EXPECT_EQ(read(part("file", "f") + part("stream", "true") + part("response_format", "vtt")).error().to_string(),
            "stream: is not supported with response_format vtt; use response_format json or text, or leave it out");
  const std::string granularity = ", but timestamps are available only for segments; send segment";
  const std::string boolean = "; send true or false";
  const std::pair<std::pair<std::string, std::string>, std::string> cases[] = {
      {{"response_format", "xml"}, "response_format: is 'xml'; use json, verbose_json, text, srt or vtt"},
      {{"stream", "yes"}, "stream: is 'yes'" + boolean},
      {{"timestamp_granularities[]", "word"}, "timestamp_granularities: contains 'word'" + granularity},
      {{"timestamp_granularities", "line"}, "timestamp_granularities: contains 'line'" + granularity},
      {{"timestamp_granularities[]", "segment"}, "accepted"},
      {{"language", "xx"}, "language: 'xx' is not a language of this model; send an ISO 639-1 code such as en, or leave it out"},
      {{"temperature", "warm"}, "temperature: 'warm' is not a valid number"},
      {{"temperature", "1x"}, "temperature: '1x' is not a valid number"},
      {{"temperature", ""}, "accepted"},
      {{"seed", "-1"}, "seed: '-1' is not a valid number"},
      {{"temperature_increment_on_fallback", "0"}, "accepted"},
      {{"temperature_increment_on_fallback", "0.05"}, "accepted"},
      {{"temperature_increment_on_fallback", "0.04"}, "temperature_increment_on_fallback: is too small; send 0 or at least 0.05"},
      {{"temperature_increment_on_fallback", "-1"}, "temperature_increment_on_fallback: is too small; send 0 or at least 0.05"},
      {{"condition_on_previous_text", "maybe"}, "condition_on_previous_text: is 'maybe'" + boolean},
      {{"carry_initial_prompt", "2"}, "carry_initial_prompt: is '2'" + boolean},
      {{"prompt", std::string(16 << 10, 'p')}, "accepted"},
      {{"prompt", std::string((16 << 10) + 1, 'p')}, "prompt: is too long, with 16385 bytes; send a shorter text"},
      {{"model", "other"}, "model: 'other' is not served by this server; use 'ears'"},
  };
  for (const auto& [field, wanted] : cases) EXPECT_EQ(error(field.first, field.second), wanted) << field.first;
  EXPECT_EQ(with("timestamp_granularities[]", "word").error().code, ErrorCode::unsupported);
  EXPECT_EQ(with("timestamp_granularities[]", "line").error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(with("b", "1")->ignored_fields, "b");
  EXPECT_EQ(read(part("file", "f") + part("b", "1") + part("a", "1"))->ignored_fields, "a,b");
  options_.strict_fields = true;
  EXPECT_EQ(error("b", "1"), "b: is unknown, which --strict-fields forbids; leave it out");
  options_.strict_fields = false;
  load(false);
  EXPECT_EQ(error("language", "de"), "language: is 'de', but this model supports English only; send en");
  EXPECT_EQ(error("language", "en"), "accepted");
  EXPECT_EQ(error("language", "en", true), "model: supports English only and cannot translate; use /v1/audio/transcriptions");
  EXPECT_EQ(with("language", "")->language, "en");
  speech_->words.previous.reset();
  EXPECT_EQ(error("prompt", "a"), "prompt: is not supported: the model has no <|startofprev|> token; leave it out");
  EXPECT_EQ(error("prompt", " \t\r\n"), "accepted");
}

TEST_F(TranscriptionForms, RequestsHaveTheValuesOfTheForm) {
  const auto plain = read(part("file", "f"));
  ASSERT_TRUE(plain) << plain.error().to_string();
  EXPECT_EQ(plain->form, TranscriptForm::json);
  EXPECT_FALSE(plain->stream);
  EXPECT_FALSE(plain->is_translation);
  EXPECT_EQ(plain->language, "");
  EXPECT_TRUE(plain->conditions_on_previous);
  EXPECT_FALSE(plain->keeps_previous);
  EXPECT_EQ(plain->sampling.temperature, 0.0F);
  EXPECT_EQ(plain->sampling.top_p, 1.0F);
  EXPECT_EQ(plain->sampling.top_k, 0);
  EXPECT_EQ(plain->sampling.min_p, 0.0F);
  EXPECT_EQ(plain->sampling.repetition_penalty, 1.0F);
  EXPECT_FALSE(plain->sampling.seed);
  EXPECT_EQ(plain->thresholds.max_compression_ratio, 2.4F);
  EXPECT_EQ(plain->thresholds.min_mean_logprob, -1.0F);
  EXPECT_EQ(plain->thresholds.temperature_increment, 0.2F);
  const auto full = read(part("file", "f") + part("temperature", "0.5") + part("top_p", "0.25") + part("top_k", "3") +
                             part("min_p", "0.125") + part("repetition_penalty", "1.5") + part("frequency_penalty", "0.75") +
                             part("presence_penalty", "-0.5") + part("seed", "9") + part("compression_ratio_threshold", "3") +
                             part("logprob_threshold", "-2") + part("temperature_increment_on_fallback", "0.5") +
                             part("condition_on_previous_text", "False") + part("carry_initial_prompt", "1") + part("language", "de") +
                             part("prompt", " \t ab ") + part("response_format", "text") + part("stream", "True"),
                         true);
  ASSERT_TRUE(full) << full.error().to_string();
  EXPECT_EQ(full->sampling.temperature, 0.5F);
  EXPECT_EQ(full->sampling.top_p, 0.25F);
  EXPECT_EQ(full->sampling.top_k, 3);
  EXPECT_EQ(full->sampling.min_p, 0.125F);
  EXPECT_EQ(full->sampling.repetition_penalty, 1.5F);
  EXPECT_EQ(full->sampling.frequency_penalty, 0.75F);
  EXPECT_EQ(full->sampling.presence_penalty, -0.5F);
  EXPECT_EQ(full->sampling.seed, 9U);
  EXPECT_EQ(full->thresholds.max_compression_ratio, 3.0F);
  EXPECT_EQ(full->thresholds.min_mean_logprob, -2.0F);
  EXPECT_EQ(full->thresholds.temperature_increment, 0.5F);
  EXPECT_FALSE(full->conditions_on_previous);
  EXPECT_TRUE(full->keeps_previous);
  EXPECT_TRUE(full->is_translation);
  EXPECT_EQ(full->language, "de");
  EXPECT_EQ(tokens_to_bytes(full->previous), " ab ");
  EXPECT_EQ(full->form, TranscriptForm::text);
  EXPECT_TRUE(full->stream);
  EXPECT_EQ(with("top_k", "-1")->sampling.top_k, 0);
  for (const auto& [name, form] : {std::pair("json", TranscriptForm::json),
                                   {"verbose_json", TranscriptForm::verbose_json},
                                   {"text", TranscriptForm::text},
                                   {"srt", TranscriptForm::srt},
                                   {"vtt", TranscriptForm::vtt}})
    EXPECT_EQ(with("response_format", name)->form, form) << name;
}

TEST_F(TranscriptionForms, PromptKeepsItsLastTokens) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>('a' + i % 26);
  const auto request = with("prompt", text);
  ASSERT_TRUE(request) << request.error().to_string();
  EXPECT_EQ(tokens_to_bytes(request->previous), text.substr(300 - 223)) << "one token less than half of the context";
  EXPECT_EQ(tokens_to_bytes(with("prompt", text.substr(0, 222))->previous), " " + text.substr(0, 222));
  EXPECT_EQ(tokens_to_bytes(with("prompt", text.substr(0, 223))->previous), text.substr(0, 223));
}

TEST_F(TranscriptionForms, WindowsHaveTheirPromptAndRules) {
  TranscriptionRequest request;
  request.sampling.temperature = 0.0F;
  const std::vector<TokenId> before = {'a', 'b'};
  const auto prompt = [&](const WindowTask& task) { return prompt_of(request, speech_->words, task); };
  EXPECT_EQ(prompt({.language = ""}), std::vector<TokenId>{kSpeechStart}) << "the language is detected";
  EXPECT_EQ(prompt({.language = "de"}), (std::vector<TokenId>{kSpeechStart, kSpeechGerman, kSpeechTranscribe, kSpeechNoTimes}));
  EXPECT_EQ(prompt({.language = "de", .has_timestamps = true, .previous = before}),
            (std::vector<TokenId>{kSpeechPrevious, 'a', 'b', kSpeechStart, kSpeechGerman, kSpeechTranscribe}));
  request.is_translation = true;
  EXPECT_EQ(prompt({.language = "en"}), (std::vector<TokenId>{kSpeechStart, kSpeechEnglish, kSpeechTranslate, kSpeechNoTimes}));
  const auto sampling = [&](const WindowTask& task) { return sampling_of(request, *speech_, task); };
  const SamplingParams detecting = sampling({.language = "", .temperature = 0.5F});
  EXPECT_EQ(detecting.timestamps.begins,
            (std::vector<std::vector<TokenId>>{{kSpeechEnglish, kSpeechGerman}, {kSpeechTranslate}, {kSpeechNoTimes}}));
  EXPECT_EQ(detecting.max_tokens, 227U) << "half of the context, and the tokens before the text";
  EXPECT_EQ(detecting.temperature, 0.5F);
  EXPECT_EQ(detecting.seed, 0U) << "a later attempt gives the same text each time";
  const SamplingParams known = sampling({.language = "de", .has_timestamps = true});
  EXPECT_EQ(known.max_tokens, 224U);
  EXPECT_FALSE(known.seed);
  EXPECT_TRUE(known.timestamps.has_timestamps);
  EXPECT_TRUE(known.timestamps.begins.empty());
  EXPECT_EQ(known.timestamps.first_time, kSpeechFirstTime);
  EXPECT_EQ(known.timestamps.end, kSpeechEnd);
  EXPECT_EQ(known.timestamps.max_first, 50U);
  EXPECT_EQ(known.stop_token_ids, std::vector<TokenId>{kSpeechEnd});
  EXPECT_EQ(known.logprobs, 0U);
  EXPECT_EQ(known.bad_words,
            (std::vector<std::vector<TokenId>>{{65}, {kSpeechStart}, {kSpeechTranscribe}, {kSpeechTranslate}, {kSpeechNoTimes}}));
  request.sampling.seed = 7;
  EXPECT_EQ(sampling({.language = "de", .temperature = 0.5F}).seed, 7U);
}

}  // namespace
}  // namespace quire
