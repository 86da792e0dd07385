#pragma once
// Runs a simulation and also returns its steps, for fitting a worker model to a run.
#include <vector>

#include "quire/simulation.h"

namespace quire {

struct SimulatedStep {
  double ready_s = 0.0;  // time at which the step's result was ready
  StepSizes sizes;
};

// Runs simulate() and appends the steps of all instances to `steps`, in the order of their plans.
Result<SimulationResult> simulate_steps(const Workload& workload, const SimulationOptions& options, std::vector<SimulatedStep>& steps);

}  // namespace quire
