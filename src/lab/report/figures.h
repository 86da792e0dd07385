#pragma once
// Functions that the reports share.
#include <string>

#include "quire/simulation.h"

namespace quire {

std::string routing_name(Routing routing);
// Returns the fraction of the finished requests' prompt tokens that were cached at first admission.
double hit_rate(const SimulationResult& result);
// Returns the sizes and speeds that convert the curve of a simulated cache to bytes and seconds.
CurveCosts curve_costs(const HitRateCurve& curve, const SimulationOptions& options);

}  // namespace quire
