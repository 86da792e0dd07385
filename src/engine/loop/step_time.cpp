#include "engine/loop/step_time.h"

#include <algorithm>
#include <cmath>

namespace quire {

namespace {

constexpr double kNewest = 0.25;  // weight of the newest step in an average
// A chunk takes at least this share of its step. The decodes take the rest.
constexpr double kLeastShare = 0.1;
// No stream waits during a step without decodes, only new requests for their first token. Larger steps cost less per token.
constexpr double kWithoutDecodes = 4.0;
// Smaller chunks cost much more per token, because each step reads all weights.
constexpr double kLeastBesideDecodes = 16.0, kLeastWithoutDecodes = 64.0, kMostCost = 65536.0;
// A limit stays until it would rise by more than this share or fall by more than that. If it is too high, streams wait.
constexpr double kSmallestRise = 0.125, kSmallestFall = 0.03125;

// A value counts as this many times the mean at most.
constexpr double kLargestOutlier = 4.0;

void average(double& mean, double value) {
  mean = mean > 0.0 ? mean + kNewest * (std::min(value, kLargestOutlier * mean) - mean) : value;
}

}  // namespace

void StepTimePredictor::observe(const StepWork& work, double seconds) {
  if (!std::isfinite(seconds) || seconds <= 0.0 || work.has_encoder_inputs) return;
  if (work.num_decodes > 0) num_decodes_ = work.num_decodes;
  if (work.num_prompt_tokens == 0) {
    average(decode_s_, seconds);
    average(decode_rows_, work.num_decodes);
    return;
  }
  const double most_decodes_s = (1.0 - kLeastShare) * seconds;
  // The average is too high for this machine now. While prompts keep arriving, no step without prompt tokens corrects it.
  if (const double s = decodes_s(work.num_decodes); s > most_decodes_s) decode_s_ *= most_decodes_s / s;
  const double prompts_s = seconds - decodes_s(work.num_decodes);
  average(prompt_token_s_, prompts_s / cost(work));
  context_ = work.num_context_reads / work.num_prompt_tokens;
  context_cost_.observe(context_, prompts_s / work.num_prompt_tokens);
  if (const std::uint32_t tokens = context_cost_.context_of_double_cost(); tokens != limits_.context_of_double_cost) {
    const double before = token_cost(context_);
    limits_.context_of_double_cost = tokens;
    prompt_token_s_ *= before / token_cost(context_);  // steps like the last one are predicted as before
  }
}

double StepTimePredictor::token_cost(double context) const {
  return limits_.context_of_double_cost == 0 ? 1.0 : 1.0 + context / limits_.context_of_double_cost;
}

double StepTimePredictor::cost(const StepWork& work) const {
  return work.num_prompt_tokens == 0 ? 0.0 : work.num_prompt_tokens * token_cost(work.num_context_reads / work.num_prompt_tokens);
}

double StepTimePredictor::predict_s(const StepWork& work) const {
  if (work.has_encoder_inputs || (work.num_prompt_tokens > 0 ? prompt_token_s_ : decode_s_) <= 0.0) return 0.0;
  return decodes_s(work.num_decodes) + cost(work) * prompt_token_s_;
}

PrefillLimits StepTimePredictor::limits() {
  const double decodes = decodes_s(num_decodes_);
  const double target_s = std::max(target_s_, 2.0 * decodes);
  const double least = token_cost(context_);
  limits_.beside_decodes = cost_within(target_s - decodes, kLeastBesideDecodes * least, limits_.beside_decodes);
  limits_.without_decodes = cost_within(kWithoutDecodes * target_s, kLeastWithoutDecodes * least, limits_.without_decodes);
  return limits_;
}

// Fewer decodes than before take less time, at best in proportion. With that assumption the rest of a step counts as prompt tokens, so the
// limits err on the side of short steps.
double StepTimePredictor::decodes_s(std::uint32_t num_decodes) const {
  if (num_decodes == 0 || decode_rows_ <= 0.0) return 0.0;
  return decode_s_ * std::min(1.0, num_decodes / decode_rows_);
}

std::uint32_t StepTimePredictor::cost_within(double seconds, double least, std::uint32_t last) const {
  if (prompt_token_s_ <= 0.0) return last;
  const double fitting = std::min(std::max(seconds / prompt_token_s_, least), kMostCost);
  const bool stays = fitting <= (1.0 + kSmallestRise) * last && fitting >= (1.0 - kSmallestFall) * last;
  return stays ? last : static_cast<std::uint32_t>(fitting);
}

}  // namespace quire
