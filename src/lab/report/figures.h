#pragma once
// What the reports share.
#include <string>

#include "quire/simulation.h"

namespace quire {

std::string routing_name(Routing routing);
// Share of the prompt tokens of finished requests that were cached at their first admission.
double hit_rate(const SimulationResult& result);
// Of a simulated curve.
CurveCosts curve_costs(const CacheCurve& curve, const SimulationOptions& options);

}  // namespace quire
