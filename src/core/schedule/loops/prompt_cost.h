#pragma once
// Computes the cost of prompt tokens in a step. A token costs 1, plus 1 for each context_of_double_cost tokens before it (PrefillLimits),
// because attention reads these tokens.
#include <cstdint>

namespace quire {

class PromptCost {
 public:
  // 0: each token costs 1.
  explicit PromptCost(std::uint32_t context_of_double_cost = 0) : context_of_double_cost_(context_of_double_cost) {}

  // Returns the cost of `num_tokens` after `context` others, rounded down. `num_tokens` is at most 2^30, or both together at most 2^31.
  [[nodiscard]] std::int64_t of(std::int64_t num_tokens, std::int64_t context) const;
  // Returns how many of `wanted` tokens after `context` others cost at most `cost`.
  [[nodiscard]] std::int64_t tokens_within(std::int64_t cost, std::int64_t context, std::int64_t wanted) const;

 private:
  std::int64_t context_of_double_cost_;
};

}  // namespace quire
