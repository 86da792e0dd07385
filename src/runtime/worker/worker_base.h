#pragma once
// The seam between the engine and what computes.
#include <optional>
#include <span>

#include "quire/plan.h"
#include "runtime/sample/sampler.h"

namespace quire {

// Views, valid until the finish() after the next one. `outcomes` is parallel to step.sampled; a failed one has token 0 there, and what its
// request samples after it means nothing. Log probabilities may be moved out.
struct WorkerResult {
  StepResult step;
  std::span<SampleOutcome> outcomes;
};

// Called by one thread; plans in order, each started and finished exactly once, and one at
// a time. Between the two the step may go on, on other threads, and reads the plan and its sampling parameters.
class WorkerBase {
 public:
  virtual ~WorkerBase() = default;
  virtual void start(const StepPlan& plan) = 0;
  // Computes with the others until the end of the step is near: the time to make the next plan.
  virtual void assist() {}
  // Computes with the others to the end.
  virtual WorkerResult finish() = 0;
  // While transfers are under way: the time (s, of the engine's clock) at which a step, which may be empty, should collect those that are
  // over. The engine asks when nothing else is left to do; nullopt leaves the time to it.
  [[nodiscard]] virtual std::optional<double> next_transfer_s() const { return std::nullopt; }

  WorkerResult execute(const StepPlan& plan) {
    start(plan);
    return finish();
  }
};

}  // namespace quire
