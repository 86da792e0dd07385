#pragma once
// Functions shared by the reports.
#include <string>

#include "quire/simulation.h"

namespace quire {

std::string routing_name(Routing routing);
// Returns the share of prompt tokens of finished requests that were cached at their first admission.
double hit_rate(const SimulationResult& result);
// Returns the costs for a simulated cache curve.
CurveCosts curve_costs(const HitRateCurve& curve, const SimulationOptions& options);

}  // namespace quire
