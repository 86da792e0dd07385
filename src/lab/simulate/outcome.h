#pragma once
// Computes the results of a simulation from the times of requests and the totals of instances.
#include "lab/simulate/instance.h"
#include "quire/simulation.h"

namespace quire {

void add_instance(SimulationResult& result, const Instance& instance);
// Computes all statistics of `result`. Call it once, after all instances were added and `requests` is set.
void summarise(SimulationResult& result, const SimulationOptions& options);

}  // namespace quire
