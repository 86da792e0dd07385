#pragma once
// Runs the plans of the core. The worker keeps the token histories and feeds its own samples back, so a plan never waits for a token.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "quire/plan.h"
#include "runtime/memory/block_tables.h"
#include "runtime/memory/kv_cache.h"
#include "runtime/model/model.h"
#include "runtime/sample/sampler.h"
#include "runtime/worker/batch.h"
#include "runtime/worker/step_task.h"
#include "runtime/worker/worker_base.h"

namespace quire {

struct WorkerLimits {
  std::uint32_t max_num_seqs = 0;
  std::uint32_t max_model_len = 0;           // tokens
  std::uint32_t max_num_batched_tokens = 0;  // of one step
};

// The model on this machine's processors.
class Worker final : public WorkerBase {
 public:
  // `model` was loaded with `pool`.
  Worker(const WorkerLimits& limits, std::unique_ptr<ThreadPool> pool, std::unique_ptr<Model> model, KvCache cache);
  ~Worker() override;

  void start(const StepPlan& plan) override { task_.start(plan); }
  void assist() override { task_.assist(); }
  WorkerResult finish() override { return task_.finish(); }

 private:
  void run(const StepPlan& plan, StepResults& results);
  void update_batch(const StepPlan& plan);
  void forward(const StepPlan& plan);  // fills rows_

  std::unique_ptr<ThreadPool> pool_;  // before its users
  std::unique_ptr<Model> model_;
  KvCache cache_;
  BlockTables tables_;
  Sampler sampler_;
  Batch batch_;
  std::unique_ptr<float[]> logits_;  // [max_num_seqs][vocab_size]; pages never written cost nothing
  std::vector<SampleRow> rows_;
  StepTask task_;  // last: it uses all the others
};

}  // namespace quire
