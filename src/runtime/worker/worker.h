#pragma once
// Runs the plans of the core. The worker keeps the token histories and feeds its own samples back, so a plan never waits for a token.
// Called by the engine thread as WorkerBase says; a step runs on the threads of the pool, led by one of them. It decides nothing about
// requests: a plan that does not fit what it remembers stops the program.
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "quire/base/options.h"
#include "quire/base/plan.h"
#include "runtime/memory/block_tables.h"
#include "runtime/memory/kv_cache.h"
#include "runtime/model/model.h"
#include "runtime/sample/ngram_proposer.h"
#include "runtime/sample/sampler.h"
#include "runtime/transport/transfer_runner.h"
#include "runtime/worker/adapter_source.h"
#include "runtime/worker/batch.h"
#include "runtime/worker/draft_model.h"
#include "runtime/worker/encoder_source.h"
#include "runtime/worker/model_proposer.h"
#include "runtime/worker/picture_encoder.h"
#include "runtime/worker/pooler.h"
#include "runtime/worker/prompt_scorer.h"
#include "runtime/worker/step_task.h"
#include "runtime/worker/worker_base.h"

namespace quire {

// The most that a plan may ask for; the engine makes core and worker from the same options.
struct WorkerLimits {
  std::uint32_t max_num_seqs = 0;
  std::uint32_t max_model_len = 0;           // tokens
  std::uint32_t max_num_batched_tokens = 0;  // of one step
  NgramOptions speculation = {};
};

// Sees each row of logits that a token was sampled from, as the model gave it. Called in the step.
class LogitsObserver {
 public:
  virtual ~LogitsObserver() = default;
  // `num_tokens` of the request were known: the row is the next one's.
  virtual void see(RequestId id, std::uint32_t num_tokens, std::span<const float> logits) = 0;
};

// What a worker is connected to; each may be null, and the last three outlive the worker.
struct WorkerSources {
  std::shared_ptr<Transport> transport = {};
  LogitsObserver* observer = nullptr;
  const AdapterSource* adapters = nullptr;
  const EncoderSource* encoder_inputs = nullptr;
};

// The model on this machine's processors.
class Worker final : public WorkerBase, private StepParts, private PassHooks, private PooledRows {
 public:
  // `model` was loaded with `pool`, and so was `draft_model`, which may be null: then drafts are looked up, if there are any.
  Worker(const WorkerLimits& limits, std::unique_ptr<ThreadPool> pool, std::unique_ptr<Model> model, KvCache cache,
         WorkerSources sources = {}, std::unique_ptr<DraftModel> draft_model = {});
  ~Worker() override;

  [[nodiscard]] WorkerCapabilities capabilities() const override;
  void notify_with(const std::function<void()>& notify) override { transfers_.notify_with(notify); }
  [[nodiscard]] std::optional<double> next_transfer_s() const override { return std::numeric_limits<double>::infinity(); }

  std::shared_ptr<const PromptPictures> take_pictures(std::span<const PromptPicture> pictures) override { return seeing().take(pictures); }
  void encode_ahead(std::span<const std::shared_ptr<EncodedPicture>> pictures) override { seeing().queue(pictures); }
  void encode() override { seeing().follow_pass(0.0); }

  void start(const StepPlan& plan) override { task_.start(plan); }
  void provide(std::span<const TokenMask> masks) override { task_.provide(masks); }
  void assist() override { task_.assist(); }
  WorkerResult finish() override { return task_.finish(); }

 private:
  void forward(const StepPlan& plan) override;  // fills rows_
  void sample(const StepPlan& plan, std::span<const TokenMask> masks, StepResults& results) override;
  void update_batch(const StepPlan& plan);
  [[nodiscard]] PictureEncoder& seeing();  // of a model that does
  void encode_pictures(const StepPlan& plan);
  void encode_inputs(const StepPlan& plan);
  void show_logits(std::span<const std::uint32_t> counts) const;
  [[nodiscard]] std::uint32_t experts_per_token() const;  // over all layers
  void gather_experts(StepResults& results) const;
  void propose(StepResults& results);
  // Of requests of which some drafts were wrong: to where those behind the right ones are looked for.
  void bring_states_home(std::span<const std::uint32_t> counts);
  void before_attention(std::uint32_t layer) override { transfers_.before_attention(layer); }
  void after_kv_write(std::uint32_t layer) override { transfers_.after_kv_write(layer); }
  void read_hidden(std::span<const std::uint32_t> outputs, const PoolRun& run, std::span<float> rows) override;
  void read_logits(std::uint32_t output, const PoolRun& run, std::span<const TokenId> tokens, std::span<float> logits) override;

  std::uint32_t max_num_seqs_;
  std::unique_ptr<ThreadPool> pool_;  // before its users
  std::unique_ptr<Model> model_;
  KvCache cache_;
  TransferRunner transfers_;  // behind the memory that it uses
  BlockTables tables_;
  Sampler sampler_;
  std::uint32_t num_spec_tokens_;
  std::optional<NgramProposer> proposer_;
  std::optional<ModelProposer> model_proposer_;  // instead of it, where there is a draft model
  std::optional<PictureEncoder> encoder_;        // where the model sees
  Batch batch_;
  PromptScorer prompt_scorer_;
  Pooler pooler_;
  std::unique_ptr<float[]> logits_;         // [max_num_seqs, and their drafts][vocab_size]; pages never written cost nothing
  std::unique_ptr<float[]> pooled_logits_;  // [vocab_size]; the same
  std::vector<std::uint16_t> experts_;      // [row of the pass][experts_per_token()]; empty: nobody asks
  // One per request that samples, from forward() to sample() of the same step.
  std::vector<SampleRow> rows_;
  LogitsObserver* observer_;
  const AdapterSource* adapters_;
  // Of a layer's state, within bring_states_home().
  struct StateMove {
    std::uint32_t layer;
    BlockId from, to;
  };
  std::vector<StateMove> state_moves_;
  const EncoderSource* encoder_inputs_;
  StepTask task_;  // last: it uses all the others
};

}  // namespace quire
