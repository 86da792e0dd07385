#pragma once
// Fits worker models by least squares with non-negative weights.
#include <array>
#include <cstddef>
#include <span>

#include "quire/simulation.h"

namespace quire {

inline constexpr std::size_t kNumTerms = 5;
using Terms = std::array<double, kNumTerms>;

struct Observation {
  Terms sizes;  // the sizes of which `value` is a weighted sum
  double value;
};

inline Terms terms_of(const StepSizes& sizes) {
  return {1.0, sizes.prefill_tokens, sizes.decode_rows, sizes.context_tokens, sizes.prefill_pairs};
}
inline Terms weights_of(const WorkerModel& worker) {
  return {worker.step_s, worker.prefill_token_s, worker.decode_row_s, worker.context_token_s, worker.prefill_pair_s};
}
// Returns a worker model with these seconds per term; its `host_s` is 0.
inline WorkerModel worker_of(const Terms& weights) {
  return {.host_s = 0.0,
          .step_s = weights[0],
          .prefill_token_s = weights[1],
          .decode_row_s = weights[2],
          .context_token_s = weights[3],
          .prefill_pair_s = weights[4],
          .source = {}};
}

// Returns the non-negative weights that minimize the sum of ((weights * sizes - value) / value)^2. The result is exact: there are so few
// terms that every subset is tried. Observations with a value of 0 or less are skipped. Returns zeros if there are no observations. Only
// the weights whose bits are set in `terms` may differ from 0.
Terms fit_non_negative(std::span<const Observation> observations, unsigned terms = (1U << kNumTerms) - 1);

}  // namespace quire
