#pragma once
// Whether a request is done after its last token. The order is vLLM's: min_tokens, EOS, stop ids, length.
#include <algorithm>
#include <optional>

#include "core/schedule/request.h"
#include "quire/plan.h"

namespace quire {

struct Stop {
  FinishReason reason = FinishReason::stop;
  TokenId token = -1;  // the id that stopped it
};

inline std::optional<Stop> check_stop(const Request& request) {
  if (request.num_tokens() < request.min_total_tokens) {
    return std::nullopt;
  }
  const TokenId last = request.tokens.back();
  if (std::ranges::find(request.stop_ids, last) != request.stop_ids.end()) {
    return Stop{FinishReason::stop, last};
  }
  if (request.num_tokens() >= request.max_total_tokens) {
    return Stop{FinishReason::length, -1};
  }
  return std::nullopt;
}

}  // namespace quire
