#include "engine/loop/context_cost.h"

#include <algorithm>
#include <cmath>

namespace quire {
namespace {

// Estimate of D before the first step, and the standard deviation of log D: in two thirds of all cases, D differs from the estimate by a
// factor of at most 4.5.
constexpr double kFirstTokens = 8000.0, kFirstDeviation = 1.5;
constexpr double kLeastTokens = 64.0, kMostTokens = 1U << 20U;
// Relative standard deviations: of the measured time of a step, and of the change of u and of D from one step to the next.
constexpr double kNoise = 0.1, kChangeOfU = 0.05, kChangeOfD = 0.002;
constexpr double kMostSurprise = 1.0;  // in log time: a step that was stopped counts no more than this
// D is reported if the standard deviation of log D is below kKnownDeviation. A new value is reported only if D has changed by a factor of
// kLeastChange.
constexpr double kKnownDeviation = 0.5, kLeastChange = 1.25;

double square(double value) {
  return value * value;
}

}  // namespace

void ContextCost::observe(double context, double token_s) {
  if (!has_observed_) log_d_ = std::log(kFirstTokens);
  const double growth = context / std::exp(log_d_);
  const double expected = std::log1p(growth);
  const double by_d = -growth / (1.0 + growth);  // derivative of `expected` by log D
  if (!has_observed_) {
    has_observed_ = true;
    log_u_ = std::log(token_s) - expected;
    var_d_ = square(kFirstDeviation);
    covariance_ = -by_d * var_d_;
    var_u_ = square(kNoise) + square(by_d) * var_d_;
    return;
  }
  var_u_ += square(kChangeOfU);
  var_d_ += square(kChangeOfD);
  const double u_and_time = var_u_ + by_d * covariance_, d_and_time = covariance_ + by_d * var_d_;
  const double time_variance = u_and_time + by_d * d_and_time + square(kNoise);
  const double surprise = std::clamp(std::log(token_s) - log_u_ - expected, -kMostSurprise, kMostSurprise);
  log_u_ += u_and_time / time_variance * surprise;
  log_d_ = std::clamp(log_d_ + d_and_time / time_variance * surprise, std::log(kLeastTokens), std::log(kMostTokens));
  var_u_ -= square(u_and_time) / time_variance;
  covariance_ -= u_and_time * d_and_time / time_variance;
  var_d_ -= square(d_and_time) / time_variance;
  report();
}

void ContextCost::report() {
  if (var_d_ > square(kKnownDeviation)) return;
  const double tokens = std::exp(log_d_), last = context_of_double_cost_;
  if (tokens > kLeastChange * last || tokens < last / kLeastChange) context_of_double_cost_ = static_cast<std::uint32_t>(tokens);
}

}  // namespace quire
