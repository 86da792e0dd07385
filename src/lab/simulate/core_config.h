#pragma once
// The core that a simulation runs.
#include "quire/base/core_config.h"
#include "quire/simulation.h"

namespace quire {

// What is wrong with the options or the workload; errors name the field.
Result<void> check_played(const Workload& workload, const SimulationOptions& options);
// One group of full attention, whatever the model: what the numbers of blocks and tokens depend on.
CoreConfig simulated_core(const Workload& workload, const SimulationOptions& options);

}  // namespace quire
