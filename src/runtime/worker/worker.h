#pragma once
// Runs the plans of the core. The worker keeps the token histories and appends the tokens that it samples, so a plan never waits for a
// token. Called on the engine thread as WorkerBase describes. A step runs on the threads of the pool, led by one of these threads. The
// worker does not schedule requests. A plan that does not match its histories ends the program.
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
#include "runtime/worker/image_encoder.h"
#include "runtime/worker/model_proposer.h"
#include "runtime/worker/pooler.h"
#include "runtime/worker/prompt_scorer.h"
#include "runtime/worker/step_task.h"
#include "runtime/worker/worker_base.h"

namespace quire {

// Upper bounds for plans. The engine creates core and worker from the same options.
struct WorkerLimits {
  std::uint32_t max_num_seqs = 0;
  std::uint32_t max_model_len = 0;           // tokens
  std::uint32_t max_num_batched_tokens = 0;  // per step
  NgramOptions speculation = {};
};

// Receives each row of logits that a token was sampled from, as the model computed it. Called within the step.
class LogitsObserver {
 public:
  virtual ~LogitsObserver() = default;
  // `num_tokens`: known tokens of the request; the row predicts the next one.
  virtual void see(RequestId id, std::uint32_t num_tokens, std::span<const float> logits) = 0;
};

// Interfaces that a worker uses. Each pointer may be null; the raw pointers must outlive the worker.
struct WorkerSources {
  std::shared_ptr<Transport> transport = {};
  LogitsObserver* observer = nullptr;
  const AdapterSource* adapters = nullptr;
  const EncoderSource* encoder_inputs = nullptr;
};

// Runs a model on the CPUs of this machine.
class Worker final : public WorkerBase, private StepStages, private PassHooks, private PooledRows {
 public:
  // `model` and `draft_model` must be loaded with `pool`. If `draft_model` is null, draft tokens come from an n-gram lookup, if enabled.
  Worker(const WorkerLimits& limits, std::unique_ptr<ThreadPool> pool, std::unique_ptr<Model> model, KvCache cache,
         WorkerSources sources = {}, std::unique_ptr<DraftModel> draft_model = {});
  ~Worker() override;

  [[nodiscard]] WorkerCapabilities capabilities() const override;
  void set_notify(const std::function<void()>& notify) override { transfers_.set_notify(notify); }
  [[nodiscard]] std::optional<double> next_transfer_s() const override { return std::numeric_limits<double>::infinity(); }

  std::shared_ptr<const PromptImages> take_images(std::span<const PromptImage> pictures) override { return image_encoder().take(pictures); }
  void encode_ahead(std::span<const std::shared_ptr<EncodedImage>> pictures) override { image_encoder().queue(pictures); }
  void forget_images() override {
    if (encoder_) encoder_->forget_all();
  }
  void encode() override { image_encoder().encode_after_pass(0.0); }

  void start(const StepPlan& plan) override { task_.start(plan); }
  void provide(std::span<const TokenMask> masks) override { task_.provide(masks); }
  void assist() override { task_.assist(); }
  WorkerResult finish() override { return task_.finish(); }

 private:
  void forward(const StepPlan& plan) override;  // fills `rows_`
  void sample(const StepPlan& plan, std::span<const TokenMask> masks, StepResults& results) override;
  void update_batch(const StepPlan& plan);
  [[nodiscard]] ImageEncoder& image_encoder();  // requires a model that supports images
  void encode_images(const StepPlan& plan);
  void encode_inputs(const StepPlan& plan);
  void notify_observer(std::span<const std::uint32_t> counts) const;
  [[nodiscard]] std::uint32_t experts_per_token() const;  // over all layers
  void gather_experts(StepResults& results) const;
  void propose(StepResults& results);
  // After rejected draft tokens, copies the state after the last accepted token to the block that the next step reads.
  void commit_states(std::span<const std::uint32_t> counts);
  void before_attention(std::uint32_t layer) override { transfers_.before_attention(layer); }
  void after_kv_write(std::uint32_t layer) override { transfers_.after_kv_write(layer); }
  void read_hidden(std::span<const std::uint32_t> outputs, const PoolRun& run, std::span<float> rows) override;
  void read_logits(std::uint32_t output, const PoolRun& run, std::span<const TokenId> tokens, std::span<float> logits) override;

  std::uint32_t max_num_seqs_;
  std::unique_ptr<ThreadPool> pool_;  // declared before its users
  std::unique_ptr<Model> model_;
  KvCache cache_;
  TransferRunner transfers_;  // declared after the memory that it uses
  BlockTables tables_;
  Sampler sampler_;
  std::uint32_t num_spec_tokens_;
  std::optional<NgramProposer> proposer_;
  std::optional<ModelProposer> model_proposer_;  // set instead of `proposer_` if there is a draft model
  std::optional<ImageEncoder> encoder_;          // set if the model supports images
  Batch batch_;
  PromptScorer prompt_scorer_;
  Pooler pooler_;
  std::unique_ptr<float[]> logits_;         // [max_num_seqs, and their draft tokens][vocab_size]; unwritten pages use no memory
  std::unique_ptr<float[]> pooled_logits_;  // [vocab_size]
  std::vector<std::uint16_t> experts_;      // [row of the pass][experts_per_token()]; empty if not requested
  // One row per request that samples, from forward() to sample() of the same step.
  std::vector<SampleRow> rows_;
  LogitsObserver* observer_;
  const AdapterSource* adapters_;
  // A copy of one layer's state from a block to another block, made by commit_states().
  struct StateMove {
    std::uint32_t layer;
    BlockId from, to;
  };
  std::vector<StateMove> state_moves_;
  const EncoderSource* encoder_inputs_;
  StepTask task_;  // declared last, because it uses all the others
};

}  // namespace quire
