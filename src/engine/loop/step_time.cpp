#include "engine/loop/step_time.h"

#include <algorithm>
#include <cmath>

namespace quire {

namespace {

constexpr double kNewest = 0.25;  // weight of the newest step in an average
// A chunk takes at least this share of its step. The decodes take the rest. Keeps the time per token positive.
constexpr double kLeastShare = 0.1;
// No stream waits during a step without decodes, only new requests for their first token. Larger steps cost less per token.
constexpr double kWithoutDecodes = 4.0;
// Smaller chunks cost much more per token, because each step reads all weights.
constexpr double kLeastBesideDecodes = 16.0, kLeastWithoutDecodes = 64.0, kMostTokens = 65536.0;
constexpr double kSmallestChange = 0.125;

void average(double& mean, double value) {
  mean = mean > 0.0 ? mean + kNewest * (value - mean) : value;
}

}  // namespace

void StepTimePredictor::observe(const StepWork& work, double seconds) {
  if (!std::isfinite(seconds) || seconds <= 0.0 || work.has_encoder_inputs) return;
  if (work.num_prompt_tokens == 0) return average(decode_s_, seconds);
  const double prompt_s = work.has_decodes ? std::max(seconds - decode_s_, kLeastShare * seconds) : seconds;
  average(prompt_token_s_, prompt_s / work.num_prompt_tokens);
}

double StepTimePredictor::predict_s(const StepWork& work) const {
  if (work.has_encoder_inputs || (work.num_prompt_tokens > 0 ? prompt_token_s_ : decode_s_) <= 0.0) return 0.0;
  return (work.has_decodes ? decode_s_ : 0.0) + work.num_prompt_tokens * prompt_token_s_;
}

PrefillLimits StepTimePredictor::limits() {
  const double target_s = std::max(target_s_, 2.0 * decode_s_);
  limits_ = {.beside_decodes = tokens_within(target_s - decode_s_, kLeastBesideDecodes, limits_.beside_decodes),
             .without_decodes = tokens_within(kWithoutDecodes * target_s, kLeastWithoutDecodes, limits_.without_decodes)};
  return limits_;
}

std::uint32_t StepTimePredictor::tokens_within(double seconds, double least, std::uint32_t last) const {
  if (prompt_token_s_ <= 0.0) return last;
  const double fitting = std::clamp(seconds / prompt_token_s_, least, kMostTokens);
  return std::abs(fitting - last) <= kSmallestChange * last ? last : static_cast<std::uint32_t>(fitting);
}

}  // namespace quire
