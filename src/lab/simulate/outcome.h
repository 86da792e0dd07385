#pragma once
// From what each request and each instance went through to figures.
#include "lab/simulate/instance.h"
#include "quire/simulation.h"

namespace quire {

void add_instance(SimulationResult& result, const Instance& instance);
// Once, when all instances were added and `requests` is there.
void summarise(SimulationResult& result, const SimulationOptions& options);

}  // namespace quire
