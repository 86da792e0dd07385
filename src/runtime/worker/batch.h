#pragma once
// The persistent batch: keeps the token history of every slot and turns a plan into the input of one forward pass.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "quire/base/ids.h"
#include "quire/base/plan.h"
#include "runtime/model/model.h"
#include "runtime/worker/encoder_source.h"

namespace quire {

// Consecutive rows of a request in the pass. The token after each of these rows is a prompt token whose log probability was requested.
struct PromptRun {
  RequestId id;
  Slot slot;
  std::uint32_t first_token = 0;  // index in the prompt of the token after the first row
  std::uint32_t num_rows = 0;
  std::uint32_t first_output = 0;  // index of the run's first row among the output rows of the pass
  std::uint32_t num_logprobs = 0;  // alternatives per token, besides the token itself
};

// Rows of the pass for which experts must be reported: all rows of one request.
struct RoutedRun {
  RequestId id;
  Slot slot;
  std::uint32_t first_token = 0;
  std::uint32_t first_row = 0, num_rows = 0;  // in rows of the pass
};

// Rows of the pass that contribute to the vector of a pooling request.
struct PoolRun {
  Slot slot;
  std::uint32_t num_rows = 0;      // 0 if earlier passes computed all of them
  std::uint32_t first_output = 0;  // index of the run's first row among the output rows of the pass
  std::uint32_t first_position = 0;
  bool is_last = false;  // this pass completes the prompt
};

// Owned by a worker and used by one thread at a time. The core assigns the slots; each slot holds a history from admit() to release().
class Batch {
 public:
  // `num_spec_tokens`: maximum number of draft tokens of one request in a step. `has_encoder`: plans may name encoder inputs, which the
  // worker encodes.
  Batch(std::uint32_t max_num_seqs, std::uint32_t max_model_len, std::uint32_t max_num_batched_tokens, std::uint32_t num_spec_tokens = 0,
        bool has_encoder = false);

  // release() to expect() change only the batch. A plan that releases a free slot, or admits a request into a slot in use, ends the
  // program.
  void release(Slot slot);
  // `adapter`: the adapter of `request.lora_id`; null if lora_id is 0. `inputs`: null if the request has no images or audio.
  void admit(const AdmittedRequest& request, std::shared_ptr<const Adapter> adapter = nullptr,
             std::shared_ptr<const RequestInputs> inputs = nullptr);
  void append(Slot slot, TokenId token);
  // Stores at most `num_spec_tokens` draft tokens that are expected after the history. The next build() verifies them if the plan reserves
  // positions for draft tokens (ScheduledRequest::drafts).
  void expect(Slot slot, std::span<const TokenId> drafts);

  [[nodiscard]] std::span<const TokenId> history(Slot slot) const { return histories_[slot.value]; }
  // Returns null if the request has no inputs.
  [[nodiscard]] const RequestInputs* inputs(Slot slot) const { return inputs_[slot.value].get(); }
  [[nodiscard]] const PromptImages* pictures(Slot slot) const { return inputs(slot) == nullptr ? nullptr : inputs(slot)->pictures.get(); }

  // Returns the input of the forward pass over plan.scheduled, checked against the histories. The result is valid until the next build().
  // The embeddings of all images in scheduled rows must exist. The program ends if the plan has more draft tokens than `num_spec_tokens`,
  // encoder inputs without an encoder or images, or pipeline stages.
  //
  // With asynchronous scheduling, a plan assumes that all draft tokens in flight are accepted. Each rejected draft token moves the planned
  // positions back by one. The expected draft tokens take the reserved positions; reserved positions without a draft token are dropped.
  BatchInput build(const StepPlan& plan);
  // Returns plan.scheduled of the last build(), with the corrected positions and draft tokens. The draft tokens of a slot are valid until
  // the next expect() for the slot.
  [[nodiscard]] std::span<const ScheduledRequest> scheduled() const { return scheduled_; }
  // The next functions describe the last build(), in the plan's order. sampled_outputs() returns indices among the output rows: the rows
  // from which tokens are sampled. Each request that samples has one such row, and one after each of its draft tokens.
  [[nodiscard]] std::span<const std::uint32_t> sampled_outputs() const { return sampled_outputs_; }
  [[nodiscard]] std::span<const PoolRun> pool_runs() const { return pool_runs_; }
  [[nodiscard]] std::span<const PromptRun> prompt_runs() const { return prompt_runs_; }
  [[nodiscard]] std::span<const RoutedRun> routed_runs() const { return routed_runs_; }

 private:
  // Rows of a request's prompt that get log probabilities.
  struct PromptRows {
    std::uint32_t end = 0;  // rows before this position get log probabilities
    std::uint32_t num_logprobs = 0;
  };
  // Expected state of a slot after the last planned step.
  struct ExpectedHistory {
    std::size_t num_tokens = 0;   // length of the history if all draft tokens of the last plan are accepted
    std::vector<TokenId> drafts;  // draft tokens that are expected after the history
  };
  void check_supported(const StepPlan& plan) const;
  ScheduledRequest without_rejected_drafts(const ScheduledRequest& planned);
  void add_outputs(const ScheduledRequest& request);
  void add_prompt_run(const ScheduledRequest& request, std::uint32_t num_rows);
  void add_routed_rows(const ScheduledRequest& request, std::uint32_t begin);
  void add_embedded(const ScheduledRequest& request);
  void add_positions(const ScheduledRequest& request);
  void add_last_seen(const ScheduledRequest& request);
  void add_pool_run(const ScheduledRequest& request, std::uint32_t begin);

  std::uint32_t max_model_len_;
  std::uint32_t max_num_batched_tokens_;
  std::uint32_t num_spec_tokens_;
  bool has_encoder_;
  std::vector<std::vector<TokenId>> histories_;  // empty: the slot is free
  std::vector<TokenId> tokens_;
  std::vector<BatchSequence> sequences_;
  std::vector<std::uint32_t> output_rows_;
  std::vector<EmbeddedRow> embedded_;
  std::vector<RopePosition> rope_positions_;  // filled if any scheduled request has image grids
  std::vector<std::uint32_t> last_seen_;      // filled if the tokens of an image attend to each other in both directions
  // Positions count from the start of a request; `output_rows_` counts rows of the pass.
  std::vector<PromptRows> prompt_rows_;                       // by slot
  std::vector<PoolingKind> pooling_;                          // by slot
  std::vector<bool> returns_experts_;                         // by slot
  std::vector<std::shared_ptr<const Adapter>> adapters_;      // by slot; null: none
  std::vector<std::shared_ptr<const RequestInputs>> inputs_;  // by slot; null: none
  std::vector<ExpectedHistory> expected_histories_;           // by slot
  std::vector<ScheduledRequest> scheduled_;
  std::vector<std::uint32_t> sampled_outputs_;
  std::vector<PromptRun> prompt_runs_;
  std::vector<PoolRun> pool_runs_;
  std::vector<RoutedRun> routed_runs_;
};

}  // namespace quire
