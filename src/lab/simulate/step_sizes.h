#pragma once
// Computes the sizes of a step for the worker model.
#include "quire/base/plan.h"
#include "quire/simulation.h"

namespace quire {

inline StepSizes sizes_of(const StepPlan& plan) {
  std::uint64_t prefill = 0, rows = 0, context = 0;
  double pairs = 0.0;
  for (const ScheduledRequest& one : plan.scheduled) {
    if (one.num_tokens == 1) {
      ++rows;
      context += one.num_computed_tokens + 1;
    } else {
      prefill += one.num_tokens;
      pairs += one.num_tokens * (one.num_computed_tokens + (one.num_tokens + 1) * 0.5);
    }
  }
  return {.prefill_tokens = static_cast<double>(prefill),
          .decode_rows = static_cast<double>(rows),
          .context_tokens = static_cast<double>(context),
          .prefill_pairs = pairs};
}

}  // namespace quire
