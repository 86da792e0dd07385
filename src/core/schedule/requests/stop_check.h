#pragma once
// Decides whether a request ends after its last output. The checks have the order of vLLM V1's check_stop (v0.19.0): min_tokens, EOS, stop
// ids, length, repetition.
#include <cstdint>
#include <optional>
#include <span>

#include "core/schedule/requests/request.h"
#include "quire/base/decision_profile.h"
#include "quire/base/ids.h"
#include "quire/base/request.h"

namespace quire {

struct Stop {
  RequestStatus status = RequestStatus::finished_stopped;
  std::optional<TokenId> token;  // the stop token id that ended the request
};

// Returns why the request must stop, or nullopt. The request must have an output. With DecisionRules::min_tokens_limits_only_repetition,
// min_tokens delays only the check for repetition.
std::optional<Stop> check_stop(const Request& request, std::uint32_t max_model_len, const DecisionRules& rules = {});

// Returns whether `tokens` ends with a pattern of an allowed length that occurs min_count times in a row.
bool ends_in_repetition(std::span<const TokenId> tokens, const RepetitionDetection& detection);

FinishReason finish_reason(RequestStatus status);

}  // namespace quire
