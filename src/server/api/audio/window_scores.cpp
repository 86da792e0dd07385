#include "server/api/audio/window_scores.h"

#include <algorithm>

namespace quire {
namespace {

bool is_likely_silent(const WindowScores& scores, const WindowThresholds& thresholds) {
  return scores.no_speech_prob && *scores.no_speech_prob > static_cast<double>(thresholds.max_no_speech_prob);
}

}  // namespace

bool needs_retry(const WindowScores& scores, const WindowThresholds& thresholds) {
  const bool repeats = scores.compression_ratio && *scores.compression_ratio > static_cast<double>(thresholds.max_compression_ratio);
  const bool is_unlikely = scores.mean_logprob < static_cast<double>(thresholds.min_mean_logprob);
  if (is_likely_silent(scores, thresholds) && is_unlikely) return false;
  return repeats || is_unlikely;
}

bool is_silence(const WindowScores& scores, const WindowThresholds& thresholds) {
  return is_likely_silent(scores, thresholds) && !(scores.mean_logprob > static_cast<double>(thresholds.min_mean_logprob));
}

std::vector<float> temperatures_from(float first, const WindowThresholds& thresholds) {
  constexpr float kHottest = 1.0F, kSlack = 1e-4F;
  std::vector<float> all = {first};
  if (first > 0.0F || !(thresholds.temperature_increment > 0.0F)) return all;
  for (int i = 1; static_cast<float>(i) * thresholds.temperature_increment <= kHottest + kSlack; ++i)
    all.push_back(std::min(static_cast<float>(i) * thresholds.temperature_increment, kHottest));
  return all;
}

}  // namespace quire
