#pragma once
// Finds out from measured steps how many tokens before a prompt token double its cost. Belongs to the engine thread.
//
// Time per token = u (1 + context / D). A Kalman filter (extended, on log u and log D) follows u, which changes with the load of the
// machine, and finds D, which belongs to the model and the machine and hardly changes. D is therefore kept while all prompts have about the
// same context: a larger u and a smaller D then explain the times equally well.
#include <cstdint>

namespace quire {

class ContextCost {
 public:
  // Takes one step: the mean number of tokens before the step's prompt tokens, and the time per prompt token, which must be positive.
  void observe(double context, double token_s);
  // Returns D in tokens; 0 while D is not known well. The value changes only if D has changed much.
  [[nodiscard]] std::uint32_t context_of_double_cost() const { return context_of_double_cost_; }

 private:
  void report();

  bool has_observed_ = false;
  double log_u_ = 0.0, log_d_ = 0.0;
  // Covariance of the errors of log u and log D.
  double var_u_ = 0.0, covariance_ = 0.0, var_d_ = 0.0;
  std::uint32_t context_of_double_cost_ = 0;
};

}  // namespace quire
