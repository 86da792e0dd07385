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

namespace quire {

// Views, valid until the next execute(). `outcomes` is parallel to step.sampled; a failed one has token 0 there, and its request must be
// finished before its history is used again. Log probabilities may be moved out.
struct WorkerResult {
  StepResult step;
  std::span<SampleOutcome> outcomes;
};

// The seam between the engine and what computes. One thread at a time; plans in order, each exactly once.
class WorkerBase {
 public:
  virtual ~WorkerBase() = default;
  virtual WorkerResult execute(const StepPlan& plan) = 0;
};

struct WorkerLimits {
  std::uint32_t max_num_seqs = 0;
  std::uint32_t max_model_len = 0;           // tokens
  std::uint32_t max_num_batched_tokens = 0;  // of one step
};

// Sees each row of logits that a token is sampled from, as the model gave it. Called by execute(), before the sampler runs.
class LogitsObserver {
 public:
  virtual ~LogitsObserver() = default;
  // `num_tokens` of the request are known so far: the row tells of the next one.
  virtual void see(RequestId id, std::uint32_t num_tokens, std::span<const float> logits) = 0;
};

// The model on this machine's processors.
class Worker final : public WorkerBase {
 public:
  // `model` was loaded with `pool`. `observer` may be null; it must outlive the worker.
  Worker(const WorkerLimits& limits, std::unique_ptr<ThreadPool> pool, std::unique_ptr<Model> model, KvCache cache,
         LogitsObserver* observer = nullptr);
  ~Worker() override;

  WorkerResult execute(const StepPlan& plan) override;

 private:
  void forward(const StepPlan& plan);
  void show_logits(const StepPlan& plan) const;

  std::unique_ptr<ThreadPool> pool_;  // before its users
  std::unique_ptr<Model> model_;
  KvCache cache_;
  BlockTables tables_;
  Sampler sampler_;
  Batch batch_;
  std::unique_ptr<float[]> logits_;  // [max_num_seqs][vocab_size]; pages never written cost nothing
  std::vector<SampleRow> rows_;
  std::vector<SampleOutcome> outcomes_;
  std::vector<SampledToken> sampled_;
  LogitsObserver* observer_;
};

}  // namespace quire
