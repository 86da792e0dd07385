#pragma once
// Finds out from measured steps how many tokens before a prompt token double its cost. Belongs to the engine thread.
//
// Time per token = u (1 + context / D). A Kalman filter (extended, on log u and log D) follows u, which changes with the load of the
// machine, and finds D, which belongs to the model and the machine and hardly changes. So D is kept while all prompts have about the same
// context, where a larger u and a smaller D look alike.
#include <cstdint>

namespace quire {

class ContextCost {
 public:
  // Takes one step: the mean number of tokens before its prompt tokens, and the time per prompt token, which is positive.
  void observe(double context, double token_s);
  // Returns D in tokens; 0 while it is not known well. It changes only if it would change much.
  [[nodiscard]] std::uint32_t context_of_double_cost() const { return context_of_double_cost_; }

 private:
  void report();

  bool has_observed_ = false;
  double log_u_ = 0.0, log_d_ = 0.0;
  // Covariance of the errors of both.
  double var_u_ = 0.0, covariance_ = 0.0, var_d_ = 0.0;
  std::uint32_t context_of_double_cost_ = 0;
};

}  // namespace quire
