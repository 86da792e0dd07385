#include "core/schedule/loops/prompt_cost.h"

#include "base/check.h"

namespace quire {

// The i-th token costs 1 + (context + i) / D. With half a token more or less at both ends, the sum over i is n + n (2 context + n) / (2 D).
std::int64_t PromptCost::of(std::int64_t num_tokens, std::int64_t context) const {
  QUIRE_CHECK(num_tokens >= 0 && context >= 0, "numbers of tokens are not negative");
  if (context_of_double_cost_ == 0) return num_tokens;
  return num_tokens + num_tokens * (2 * context + num_tokens) / (2 * context_of_double_cost_);
}

std::int64_t PromptCost::tokens_within(std::int64_t cost, std::int64_t context, std::int64_t wanted) const {
  if (of(wanted, context) <= cost) return wanted;
  std::int64_t fitting = 0, exceeding = wanted;
  while (exceeding - fitting > 1) {
    const std::int64_t middle = fitting + (exceeding - fitting) / 2;
    (of(middle, context) <= cost ? fitting : exceeding) = middle;
  }
  return fitting;
}

}  // namespace quire
