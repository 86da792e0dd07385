#pragma once
// A simulation that also returns its steps, for fitting a worker to a run.
#include <vector>

#include "quire/simulation.h"

namespace quire {

struct SimulatedStep {
  double ready_s = 0.0;  // when its result was ready
  StepSizes sizes;
};

// Runs simulate() and appends the steps of all instances to `steps`, in the order of their plans.
Result<SimulationResult> simulate_steps(const Workload& workload, const SimulationOptions& options, std::vector<SimulatedStep>& steps);

}  // namespace quire
