#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "quire/base/sampling.h"

namespace quire {
namespace {

constexpr std::uint32_t kMaxLogprobs = 20;
constexpr float kMaxBias = 100.0F;
// Limits of repetition detection, which compares every new token with earlier outputs, once per pattern length.
constexpr std::int32_t kMaxPatternTokens = 256;
constexpr std::int32_t kMaxRepetitions = 1024;

std::unexpected<Error> out_of_range(const char* field, double seen, const char* range) {
  return fail(ErrorCode::invalid_argument, field, fmt::format("{} is out of range", seen), fmt::format("use a value {}", range));
}

// Returns whether the value is in [low, high]; false for NaN.
bool within(float value, float low, float high) {
  return value >= low && value <= high;
}

Result<void> validate_repetition(const RepetitionDetection& repetition) {
  const std::int32_t longest = repetition.max_pattern_tokens, shortest = repetition.min_pattern_tokens;
  if (longest < 0 || longest > kMaxPatternTokens) return out_of_range("repetition_detection.max_pattern_size", longest, "from 0 to 256");
  if (shortest < 0 || shortest > longest)
    return out_of_range("repetition_detection.min_pattern_size", shortest, "from 0 to max_pattern_size");
  if (longest > 0 && (repetition.min_count < 2 || repetition.min_count > kMaxRepetitions))
    return out_of_range("repetition_detection.min_count", repetition.min_count, "from 2 to 1024");
  return {};
}

// Rejects token ids that no model has. The engine checks ids against the model's vocabulary.
Result<void> validate_ids(const SamplingParams& params) {
  for (const auto& [token, bias] : params.logit_bias) {
    if (token < 0) return out_of_range("logit_bias", token, "that is a token id of the model");
    if (!within(bias, -kMaxBias, kMaxBias)) return out_of_range("logit_bias", static_cast<double>(bias), "from -100 to 100");
  }
  for (const TokenId token : params.stop_token_ids)
    if (token < 0) return out_of_range("stop_token_ids", token, "that is a token id of the model");
  for (const TokenId token : params.allowed_token_ids)
    if (token < 0) return out_of_range("allowed_token_ids", token, "that is a token id of the model");
  const TimestampRules& times = params.timestamps;
  if (times.first_time < 0) return out_of_range("timestamps.first_time", times.first_time, "that is a token id of the model");
  if (times.first_time > 0 && (times.end < 0 || times.end >= times.first_time))
    return out_of_range("timestamps.end", times.end, "below timestamps.first_time");
  for (const std::vector<TokenId>& choice : times.begins)
    if (choice.empty()) return fail(ErrorCode::invalid_argument, "timestamps.begins", "contains an empty choice", "leave it out");
  for (const TokenId token : times.not_first)
    if (token < 0) return out_of_range("timestamps.not_first", token, "that is a token id of the model");
  for (const std::vector<TokenId>& word : params.bad_words) {
    if (word.empty()) return fail(ErrorCode::invalid_argument, "bad_words", "contains a word without tokens", "leave it out");
    for (const TokenId token : word)
      if (token < 0) return out_of_range("bad_words", token, "that is a token id of the model");
  }
  return {};
}

}  // namespace

Result<void> SamplingParams::validate() const {
  struct Range {
    const char* field;
    float value, low, high;
    const char* words;
  };
  constexpr float kTiny = std::numeric_limits<float>::denorm_min();
  const Range ranges[] = {
      {"temperature", temperature, 0.0F, 2.0F, "from 0 to 2"},
      {"top_p", top_p, kTiny, 1.0F, "above 0 and at most 1"},
      {"min_p", min_p, 0.0F, 1.0F, "from 0 to 1"},
      {"repetition_penalty", repetition_penalty, kTiny, std::numeric_limits<float>::max(), "above 0"},
      {"presence_penalty", presence_penalty, -2.0F, 2.0F, "from -2 to 2"},
      {"frequency_penalty", frequency_penalty, -2.0F, 2.0F, "from -2 to 2"},
  };
  for (const Range& range : ranges)
    if (!within(range.value, range.low, range.high)) return out_of_range(range.field, static_cast<double>(range.value), range.words);
  if (top_k < -1) return out_of_range("top_k", top_k, "of at least 1, or 0 (or -1) for no limit");
  for (const auto& [field, count] : {std::pair("logprobs", logprobs), std::pair("prompt_logprobs", prompt_logprobs)})
    if (count && *count > kMaxLogprobs) return out_of_range(field, *count, "from 0 to 20");
  if (max_tokens == 0) return out_of_range("max_tokens", 0, "of at least 1");
  if (min_tokens > max_tokens) return out_of_range("min_tokens", min_tokens, "of at most max_tokens");
  if (auto valid = validate_repetition(repetition); !valid) return valid;
  return validate_ids(*this);
}

}  // namespace quire
