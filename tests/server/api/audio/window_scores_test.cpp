// Tests which windows are retried or dropped, by openai-whisper's rules.
#include "server/api/audio/window_scores.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace quire {
namespace {

TEST(WindowScores, RetriesRepetitiveOrUnlikelyText) {
  const WindowThresholds rules;
  EXPECT_FALSE(needs_retry({.mean_logprob = -0.9, .compression_ratio = 2.3}, rules));
  EXPECT_TRUE(needs_retry({.mean_logprob = -1.1, .compression_ratio = 1.0}, rules));
  EXPECT_TRUE(needs_retry({.mean_logprob = -0.1, .compression_ratio = 2.5}, rules));
  EXPECT_FALSE(needs_retry({.mean_logprob = -0.1}, rules)) << "a build without zlib has no ratio";
  // A window without speech is not retried. A text with high probability counts as speech all the same.
  EXPECT_FALSE(needs_retry({.mean_logprob = -1.1, .compression_ratio = 9.0, .no_speech_prob = 0.7}, rules));
  EXPECT_TRUE(needs_retry({.mean_logprob = -0.9, .compression_ratio = 9.0, .no_speech_prob = 0.7}, rules));
}

TEST(WindowScores, SilenceRequiresNoSpeechAndUnlikelyText) {
  const WindowThresholds rules;
  EXPECT_TRUE(is_silence({.mean_logprob = -1.0, .no_speech_prob = 0.7}, rules));
  EXPECT_FALSE(is_silence({.mean_logprob = -0.9, .no_speech_prob = 0.7}, rules));
  EXPECT_FALSE(is_silence({.mean_logprob = -9.0, .no_speech_prob = 0.6}, rules));
  EXPECT_FALSE(is_silence({.mean_logprob = -9.0}, rules)) << "the model reports no probability of speech";
}

TEST(WindowScores, TemperaturesRiseOnlyFromZero) {
  EXPECT_EQ(temperatures_from(0.0F, {}), (std::vector<float>{0.0F, 0.2F, 0.4F, 0.6F, 0.8F, 1.0F}));
  EXPECT_EQ(temperatures_from(0.0F, {.temperature_increment = 0.5F}), (std::vector<float>{0.0F, 0.5F, 1.0F}));
  EXPECT_EQ(temperatures_from(0.0F, {.temperature_increment = 0.0F}), std::vector<float>{0.0F});
  EXPECT_EQ(temperatures_from(0.3F, {}), std::vector<float>{0.3F});
}

// The expected sizes come from Python's zlib.compress at its default level.
TEST(WindowScores, CompressionRatioCountsBytes) {
  if (!compression_ratio("a")) GTEST_SKIP() << "this build has no zlib";
  EXPECT_NEAR(*compression_ratio("The quick brown fox jumps over the lazy dog."), 44.0 / 51, 0.05);
  std::string again;
  for (int i = 0; i < 20; ++i) again += "ha ha ";
  EXPECT_NEAR(*compression_ratio(again), 120.0 / 14, 1.0);
  EXPECT_DOUBLE_EQ(*compression_ratio(""), 0.0);
}

TEST(WindowLimits, AreThoseOfWhisper) {
  const WindowThresholds rules;
  EXPECT_FALSE(needs_retry({.mean_logprob = -1.0, .compression_ratio = static_cast<double>(2.4F)}, rules)) << "the limits themselves pass";
  EXPECT_TRUE(needs_retry({.mean_logprob = -1.1, .no_speech_prob = 0.6}, rules)) << "0.6 is not more than 0.6";
  EXPECT_FALSE(needs_retry({.mean_logprob = -1.1, .no_speech_prob = 0.61}, rules));
  EXPECT_TRUE(is_silence({.mean_logprob = -1.0, .no_speech_prob = 0.61}, rules));
  EXPECT_FALSE(is_silence({.mean_logprob = -0.99, .no_speech_prob = 0.61}, rules));
  EXPECT_EQ(temperatures_from(0.0F, {.temperature_increment = 0.6F}), (std::vector<float>{0.0F, 0.6F}));
  EXPECT_EQ(temperatures_from(0.0F, {.temperature_increment = 1.0F}), (std::vector<float>{0.0F, 1.0F}));
  EXPECT_EQ(temperatures_from(0.0F, {.temperature_increment = 1.1F}), std::vector<float>{0.0F});
  EXPECT_EQ(temperatures_from(0.0F, {.temperature_increment = -1.0F}), std::vector<float>{0.0F});
}

}  // namespace
}  // namespace quire
