#pragma once
// Configuration of the core that a simulation runs.
#include "quire/base/core_config.h"
#include "quire/simulation.h"

namespace quire {

// Returns an error that names the invalid field of the options or the workload.
Result<void> check_simulation(const Workload& workload, const SimulationOptions& options);
// Returns a configuration with one full-attention group for every model, because only the numbers of blocks and tokens matter.
CoreConfig simulated_core(const Workload& workload, const SimulationOptions& options);

}  // namespace quire
