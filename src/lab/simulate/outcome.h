#pragma once
// Turns the times of requests and the totals of instances into figures.
#include "lab/simulate/instance.h"
#include "quire/simulation.h"

namespace quire {

void add_instance(SimulationResult& result, const Instance& instance);
// Call it once, after all instances were added and `requests` is set.
void summarise(SimulationResult& result, const SimulationOptions& options);

}  // namespace quire
