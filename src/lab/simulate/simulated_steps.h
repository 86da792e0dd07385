#pragma once
// A simulation whose steps are kept, for those who fit a worker to a run.
#include <vector>

#include "quire/simulation.h"

namespace quire {

struct SimulatedStep {
  double ready_s = 0.0;  // when its result was there
  StepSizes sizes;
};

// simulate(), and the steps of all instances in the order in which they were planned.
Result<SimulationResult> simulate_steps(const Workload& workload, const SimulationOptions& options, std::vector<SimulatedStep>& steps);

}  // namespace quire
