#pragma once
// Runs a step on a thread pool. Has memory for the results of two steps, so that the engine can read one result while the next is written.
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "base/thread_pool.h"
#include "quire/base/clock.h"
#include "quire/base/plan.h"
#include "runtime/worker/step_results.h"
#include "runtime/worker/worker_base.h"

namespace quire {

// The two parts of a worker's step; each may run on any thread of the pool.
class StepStages {
 public:
  virtual ~StepStages() = default;
  // Applies the plan's changes and runs the forward pass.
  virtual void forward(const StepPlan& plan) = 0;
  // Samples tokens after the pass into `results`. On entry, `results` still has the results of the step before the previous one. Must not
  // set `timings`.
  virtual void sample(const StepPlan& plan, std::span<const TokenMask> masks, StepResults& results) = 0;
};

// Implements the functions of WorkerBase for a worker that runs a step as one task of a pool. If masks arrive after the forward pass, the
// task ends there, and finish() samples.
class StepTask {
 public:
  // `clock` measures the timings.
  StepTask(ThreadPool& pool, std::uint32_t max_num_seqs, StepStages& stages,
           std::shared_ptr<const Clock> clock = std::make_shared<SteadyClock>());
  // Waits for a step in flight.
  ~StepTask();
  StepTask(const StepTask&) = delete;
  StepTask& operator=(const StepTask&) = delete;

  void start(const StepPlan& plan);
  void provide(std::span<const TokenMask> masks);
  void assist();
  WorkerResult finish();

 private:
  void run();
  void sample();

  ThreadPool* pool_;
  StepStages* stages_;
  std::shared_ptr<const Clock> clock_;
  std::array<StepResults, 2> results_;
  StepResults* current_ = &results_.front();
  const StepPlan* plan_ = nullptr;  // the plan that was started and not finished; else null
  std::span<const TokenMask> masks_;
  std::atomic<bool> has_masks_ = false;  // all masks of the plan have arrived
  bool has_sampled_ = false;
  double begin_s_ = 0.0;
};

}  // namespace quire
