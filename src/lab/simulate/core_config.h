#pragma once
// The configuration of the core in a simulation.
#include "quire/base/core_config.h"
#include "quire/simulation.h"

namespace quire {

// Returns an error that names the first invalid field of the options or the workload.
Result<void> check_simulation(const Workload& workload, const SimulationOptions& options);
// Returns the core's configuration. It has one full-attention cache group, because only the numbers of blocks and tokens matter.
CoreConfig simulated_core(const Workload& workload, const SimulationOptions& options);

}  // namespace quire
