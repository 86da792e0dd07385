#pragma once
// Decides whether a request is done after its last output. The order is that of vLLM V1's check_stop (v0.19.0): min_tokens, EOS, stop ids,
// length, repetition.
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
  std::optional<TokenId> token;  // the stop id that ended the request
};

// Requires that the request has an output. With DecisionRules::min_tokens_limits_only_repetition, min_tokens holds back repetition only.
std::optional<Stop> check_stop(const Request& request, std::uint32_t max_model_len, const DecisionRules& rules = {});

// Returns whether `tokens` ends with a pattern of an allowed length, min_count times in a row.
bool ends_in_repetition(std::span<const TokenId> tokens, const RepetitionDetection& detection);

FinishReason finish_reason(RequestStatus status);

}  // namespace quire
