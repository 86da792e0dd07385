#include "server/api/audio/transcript.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <string>
#include <vector>

#include "server/api/audio/speech_model.h"

namespace quire {
namespace {

namespace json = boost::json;

SpeechVocabulary speech_words() {
  SpeechVocabulary words;
  words.end = kSpeechEnd;
  words.first_time = kSpeechFirstTime;
  return words;
}

Transcript two_segments() {
  return {
      .is_translation = false,
      .language = "en",
      .duration_s = 3725.25,
      .segments = {
          {.start_s = 0.0, .end_s = 1.5, .text = " One --> \"two\".", .tokens = {1, 2}, .window_s = 0.0, .scores = {.mean_logprob = -0.25}},
          {.start_s = 3723.04,
           .end_s = 3725.25,
           .text = " Three.",
           .tokens = {3},
           .window_s = 3700.5,
           .scores = {.temperature = 0.4F, .mean_logprob = -0.5, .compression_ratio = 1.25, .no_speech_prob = 0.125}}}};
}

TEST(TranscriptTest, WritesEveryFormat) {
  const Transcript heard = two_segments();
  EXPECT_EQ(write_transcript(heard, TranscriptForm::text), "One --> \"two\". Three.\n");
  EXPECT_EQ(write_transcript(heard, TranscriptForm::srt),
            "1\n00:00:00,000 --> 00:00:01,500\nOne -> \"two\".\n\n2\n01:02:03,040 --> 01:02:05,250\nThree.\n\n");
  EXPECT_EQ(write_transcript(heard, TranscriptForm::vtt),
            "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nOne -> \"two\".\n\n01:02:03.040 --> 01:02:05.250\nThree.\n\n");
  const auto json = boost::json::parse(write_transcript(heard, TranscriptForm::json));
  EXPECT_EQ(json.at("text"), "One --> \"two\". Three.");
  EXPECT_EQ(json.at("usage").at("seconds"), 3726);
  const auto verbose = boost::json::parse(write_transcript(heard, TranscriptForm::verbose_json));
  EXPECT_EQ(verbose.at("task"), "transcribe");
  EXPECT_EQ(verbose.at("language"), "en");
  EXPECT_EQ(verbose.at("duration"), 3725.25);
  const auto& last = verbose.at("segments").at(1);
  EXPECT_EQ(last.at("id"), 1);
  EXPECT_EQ(last.at("seek"), 370050);
  EXPECT_EQ(last.at("start"), 3723.04);
  EXPECT_EQ(last.at("text"), " Three.");
  EXPECT_EQ(last.at("tokens").at(0), 3);
  EXPECT_EQ(last.at("avg_logprob"), -0.5);
  EXPECT_EQ(last.at("temperature"), 0.4);
  EXPECT_EQ(last.at("compression_ratio"), 1.25);
  EXPECT_EQ(last.at("no_speech_prob"), 0.125);
  EXPECT_TRUE(verbose.at("segments").at(0).at("no_speech_prob").is_null());
}

struct CutCase {
  std::vector<TokenId> outputs;
  double window_s;
  std::vector<std::pair<double, double>> parts;
  double next_s;
};

// openai-whisper's transcribe() cuts windows and continues in this way.
TEST(TranscriptTest, CutsWindowsAtConsecutiveTimestamps) {
  const auto t = [](double seconds) { return time_token(static_cast<int>(seconds * 50.0 + 0.5)); };
  const CutCase cases[] = {
      // The window has two segments and the beginning of a third segment, which is transcribed again.
      {{t(0), 1, t(2), t(2), 2, t(5), t(5), 3}, 30.0, {{0, 2}, {2, 5}}, 5.0},
      // The last segment ends with the window.
      {{t(0), 1, t(2), t(2), 2, t(5)}, 30.0, {{0, 2}, {2, 5}}, 30.0},
      // The window has one text, with or without a timestamp at its end.
      {{t(0), 1, 2, t(4)}, 30.0, {{0, 4}}, 30.0},
      {{t(0), 1, 2}, 12.5, {{0, 12.5}}, 12.5},
      {{1, 2}, 30.0, {{0, 30}}, 30.0},
      {{}, 30.0, {}, 30.0},
      // The timestamps are after the end of the audio, or make almost no progress.
      {{t(0), 1, t(28), t(28), 2}, 10.0, {{0, 10}}, 10.0},
      {{t(0), 1, t(0.02), t(0.02), 2}, 30.0, {{0, 0.02}}, 1.0},
  };
  for (const CutCase& one : cases) {
    const TranscribedWindow heard = cut_window(one.outputs, one.window_s, speech_words());
    ASSERT_EQ(heard.parts.size(), one.parts.size());
    for (std::size_t i = 0; i < one.parts.size(); ++i) {
      EXPECT_NEAR(heard.parts[i].start_s, one.parts[i].first, 1e-9);
      EXPECT_NEAR(heard.parts[i].end_s, one.parts[i].second, 1e-9);
    }
    EXPECT_NEAR(heard.next_s, one.next_s, 1e-9);
  }
}

TEST(TranscriptText, HasTimesAndMediaTypes) {
  Transcript transcript{.is_translation = true, .language = "de", .duration_s = 2.0};
  transcript.segments = {{.start_s = 3599.9996, .end_s = 3600.0, .text = "  "},
                         {.start_s = -1.0, .end_s = 59.9994, .text = " a-->-->b ", .window_s = 1.234}};
  EXPECT_EQ(write_transcript(transcript, TranscriptForm::srt), "1\n00:00:00,000 --> 00:00:59,999\na->->b\n\n")
      << "a segment without text has no number";
  transcript.segments[0].text = "x";
  EXPECT_EQ(write_transcript(transcript, TranscriptForm::vtt).substr(0, 40), "WEBVTT\n\n01:00:00.000 --> 01:00:00.000\nx\n");
  const json::value verbose = json::parse(write_transcript(transcript, TranscriptForm::verbose_json));
  EXPECT_EQ(verbose.at("task"), "translate");
  EXPECT_EQ(verbose.at("segments").as_array()[1].at("seek"), 123);
  EXPECT_EQ(verbose.at("segments").as_array()[0].at("id"), 0);
  EXPECT_EQ(verbose.at("usage"), json::parse(R"({"type":"duration","seconds":2})"));
  transcript.duration_s = 2.01;
  EXPECT_EQ(json::parse(write_transcript(transcript, TranscriptForm::json)).at("usage").at("seconds"), 3);
  for (const TranscriptForm form : {TranscriptForm::json, TranscriptForm::verbose_json}) EXPECT_EQ(media_type(form), "application/json");
  for (const TranscriptForm form : {TranscriptForm::text, TranscriptForm::srt, TranscriptForm::vtt})
    EXPECT_EQ(media_type(form), "text/plain; charset=utf-8");
  EXPECT_EQ(delta_event("a"), "data: {\"type\":\"transcript.text.delta\",\"delta\":\"a\"}\n\n");
  EXPECT_EQ(done_event({.language = "en", .duration_s = 1.0}),
            "data: {\"type\":\"transcript.text.done\",\"text\":\"\",\"usage\":{\"type\":\"duration\",\"seconds\":1}}\n\ndata: [DONE]\n\n");
}

}  // namespace
}  // namespace quire
