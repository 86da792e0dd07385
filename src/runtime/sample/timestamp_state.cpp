// Implements openai-whisper's ApplyTimestampRules and SuppressBlank, in the same order.
#include "runtime/sample/timestamp_state.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "runtime/sample/row_math.h"

namespace quire {
namespace {

void mask(std::span<float> logits, std::size_t begin, std::size_t end) {
  end = std::min(end, logits.size());
  for (std::size_t i = begin; i < end; ++i) logits[i] = -kInfinity;
}

// Returns whether all timestamps together are likelier than the likeliest other token.
bool is_timestamp_due(std::span<const float> logits, std::size_t first) {
  const float time = row_max(logits.subspan(first));
  if (std::isnan(time)) return false;
  const float word = row_max(logits.first(first));
  return std::isnan(word) || static_cast<double>(time) + std::log(exp_sum(logits.subspan(first), time, 1.0F)) > static_cast<double>(word);
}

}  // namespace

void TimestampState::begin(const TimestampRules& rules, std::span<const TokenId> outputs) {
  *this = {};
  for (const TokenId output : outputs) add(rules, output);
}

void TimestampState::add(const TimestampRules& rules, TokenId output) {
  if (num_forced_ < rules.begins.size()) {
    ++num_forced_;
    return;
  }
  ++num_outputs_;
  second_last_is_timestamp_ = last_is_timestamp_;
  last_is_timestamp_ = output >= rules.first_time;
  if (last_is_timestamp_) last_timestamp_ = output;
}

void TimestampState::apply(const TimestampRules& rules, std::span<float> logits) const {
  const auto first = static_cast<std::size_t>(rules.first_time);
  QUIRE_CHECK(choice(rules) == nullptr, "the text has begun");
  if (num_outputs_ == 0)
    for (const TokenId token : rules.not_first) logits[static_cast<std::size_t>(token)] = -kInfinity;
  if (!rules.has_timestamps) return mask(logits, first, logits.size());
  const bool begins_text = last_is_timestamp_ && (num_outputs_ < 2 || second_last_is_timestamp_);
  const bool ends_text = last_is_timestamp_ && !begins_text;
  if (begins_text) mask(logits, first, logits.size());
  if (ends_text) mask(logits, 0, static_cast<std::size_t>(rules.end));
  // The next text may begin at the time at which the previous text ended. The end of a text must be at least one time step after its begin.
  if (last_timestamp_ >= 0) mask(logits, first, static_cast<std::size_t>(last_timestamp_) + (ends_text ? 0 : 1));
  if (num_outputs_ == 0) {
    mask(logits, 0, first);
    mask(logits, first + rules.max_first + 1, logits.size());
  }
  if (is_timestamp_due(logits, first)) mask(logits, 0, first);
}

}  // namespace quire
