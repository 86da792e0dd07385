#include "core/schedule/requests/stop_check.h"

#include <algorithm>

#include "base/check.h"

namespace quire {
namespace {

// Returns whether the last `count` groups of `length` tokens are equal.
bool repeats(std::span<const TokenId> tokens, std::size_t length, std::size_t count) {
  const std::span<const TokenId> tail = tokens.last(length * count);
  return std::equal(tail.begin() + static_cast<std::ptrdiff_t>(length), tail.end(), tail.begin());
}

bool contains(std::span<const TokenId> ids, TokenId id) {
  return std::ranges::find(ids, id) != ids.end();
}

}  // namespace

bool ends_in_repetition(std::span<const TokenId> tokens, const RepetitionDetection& detection) {
  if (detection.max_pattern_tokens <= 0 || detection.min_count < 2) return false;
  const auto count = static_cast<std::size_t>(detection.min_count);
  const auto longest = static_cast<std::size_t>(detection.max_pattern_tokens);
  for (auto length = static_cast<std::size_t>(std::max(detection.min_pattern_tokens, 1)); length <= longest; ++length) {
    if (length * count > tokens.size()) return false;
    if (repeats(tokens, length, count)) return true;
  }
  return false;
}

std::optional<Stop> check_stop(const Request& request, std::uint32_t max_model_len, const DecisionRules& rules) {
  const std::span<const TokenId> outputs = request.outputs();
  QUIRE_CHECK(!outputs.empty(), "a request stops only after a new output");
  const bool is_held = outputs.size() < request.stops.min_tokens;
  if (is_held && !rules.min_tokens_limits_only_repetition) return std::nullopt;
  const TokenId last = outputs.back();
  if (contains(request.stops.eos_ids, last)) return Stop{RequestStatus::finished_stopped, std::nullopt};
  if (contains(request.stops.stop_token_ids, last)) return Stop{RequestStatus::finished_stopped, last};
  if (request.tokens.size() >= max_model_len || outputs.size() >= request.stops.max_tokens)
    return Stop{RequestStatus::finished_length, std::nullopt};
  if (!is_held && ends_in_repetition(outputs, request.stops.repetition)) return Stop{RequestStatus::finished_repetition, std::nullopt};
  return std::nullopt;
}

FinishReason finish_reason(RequestStatus status) {
  switch (status) {
    case RequestStatus::finished_stopped:
    case RequestStatus::waiting_for_input:
      return FinishReason::stop;
    case RequestStatus::finished_length:
    case RequestStatus::finished_ignored:
      return FinishReason::length;
    case RequestStatus::finished_aborted:
      return FinishReason::abort;
    case RequestStatus::finished_error:
      return FinishReason::error;
    case RequestStatus::finished_repetition:
      return FinishReason::repetition;
    default:
      QUIRE_CHECK(false, "only a finished request has a finish reason");
  }
}

}  // namespace quire
