#pragma once
// How long a step takes, as a sum over its work: for simulations, in virtual time.
#include "quire/base/plan.h"

namespace quire {

// All in seconds; a step that computes nothing takes none.
struct StepTimeModel {
  double step_s = 0.0;
  double request_s = 0.0;        // each scheduled request
  double prompt_token_s = 0.0;   // each scheduled token after which nothing is sampled
  double sampled_token_s = 0.0;  // each that something is sampled after
  double context_token_s = 0.0;  // each token before the scheduled ones, whose keys and values are read

  [[nodiscard]] double operator()(const StepPlan& plan) const {
    if (plan.num_scheduled_tokens == 0) return 0.0;
    std::uint32_t num_samples = 0;
    std::uint64_t num_context_tokens = 0;
    for (const ScheduledRequest& request : plan.scheduled) {
      num_samples += request.samples ? 1 : 0;
      num_context_tokens += request.num_computed_tokens;
    }
    return step_s + request_s * static_cast<double>(plan.scheduled.size()) +
           prompt_token_s * static_cast<double>(plan.num_scheduled_tokens - num_samples) +
           sampled_token_s * static_cast<double>(num_samples) + context_token_s * static_cast<double>(num_context_tokens);
  }
};

}  // namespace quire
