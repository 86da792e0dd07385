#pragma once
// The step under way on a thread pool, and room for the results of two: one is read while the other is written.
#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/thread_pool.h"
#include "quire/plan.h"
#include "runtime/worker/worker_base.h"

namespace quire {

struct StepResults {
  std::vector<SampleOutcome> outcomes;
  std::vector<SampledToken> sampled;
  CollectedTransfers transfers;
};

// WorkerBase's verbs for a worker that runs a step as one task of a pool.
class StepTask {
 public:
  // Runs the plan into `results`, which hold those of two steps ago; on any thread of the pool.
  using Body = std::function<void(const StepPlan& plan, StepResults& results)>;

  StepTask(ThreadPool& pool, std::uint32_t max_num_seqs, Body body);
  // Waits for a step under way.
  ~StepTask();
  StepTask(const StepTask&) = delete;
  StepTask& operator=(const StepTask&) = delete;

  void start(const StepPlan& plan);
  void assist();
  WorkerResult finish();

 private:
  ThreadPool* pool_;
  Body body_;
  std::array<StepResults, 2> results_;
  StepResults* current_ = &results_.front();
  const StepPlan* plan_ = nullptr;  // started and not finished
};

}  // namespace quire
