#pragma once
// Models the time of a step as a sum over its work, for simulations in virtual time.
#include "quire/base/plan.h"

namespace quire {

// All values are in seconds. A step that computes nothing takes no time.
struct StepTimeModel {
  double step_s = 0.0;
  double request_s = 0.0;        // per scheduled request
  double prompt_token_s = 0.0;   // per scheduled token after which nothing is sampled
  double sampled_token_s = 0.0;  // per scheduled token after which a token is sampled
  double context_token_s = 0.0;  // per token before the scheduled ones; its keys and values are read

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
