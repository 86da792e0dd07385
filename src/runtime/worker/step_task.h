#pragma once
// The step under way on a thread pool, and room for the results of two: one is read while the other is written.
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

// The two parts of a worker's step, each on any thread of the pool.
class StepParts {
 public:
  virtual ~StepParts() = default;
  // The plan's changes and the forward pass.
  virtual void forward(const StepPlan& plan) = 0;
  // The tokens after it, into `results`, which hold those of two steps ago. Timings are not its business.
  virtual void sample(const StepPlan& plan, std::span<const TokenMask> masks, StepResults& results) = 0;
};

// WorkerBase's verbs for a worker that runs a step as one task of a pool. Where masks come late, the task ends with the forward pass, and
// finish() samples.
class StepTask {
 public:
  // `clock` measures the timings.
  StepTask(ThreadPool& pool, std::uint32_t max_num_seqs, StepParts& parts,
           std::shared_ptr<const Clock> clock = std::make_shared<SteadyClock>());
  // Waits for a step under way.
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
  StepParts* parts_;
  std::shared_ptr<const Clock> clock_;
  std::array<StepResults, 2> results_;
  StepResults* current_ = &results_.front();
  const StepPlan* plan_ = nullptr;  // started and not finished
  std::span<const TokenMask> masks_;
  std::atomic<bool> has_masks_ = false;  // all that the plan asks for
  bool has_sampled_ = false;
  double begin_s_ = 0.0;
};

}  // namespace quire
