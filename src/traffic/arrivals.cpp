#include "traffic/arrivals.h"

#include <cmath>
#include <random>

namespace quire {

std::vector<double> arrival_times(std::uint32_t count, const ArrivalOptions& options) {
  std::vector<double> times(count, 0.0);
  if (std::isinf(options.rate_per_s)) return times;
  std::mt19937_64 random(options.seed);
  std::gamma_distribution<double> gap(std::isinf(options.burstiness) ? 1.0 : options.burstiness, 1.0);
  double now = 0.0;
  for (double& time : times) time = now += std::isinf(options.burstiness) ? 1.0 : gap(random);
  const double scale = now > 0.0 ? static_cast<double>(count) / options.rate_per_s / now : 0.0;
  for (double& time : times) time *= scale;
  return times;
}

}  // namespace quire
