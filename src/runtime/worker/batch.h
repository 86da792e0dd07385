#pragma once
// The persistent batch: the token history of every slot, and the forward pass that a plan asks of it.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "quire/base/ids.h"
#include "quire/base/plan.h"
#include "runtime/model/model.h"
#include "runtime/worker/encoder_source.h"

namespace quire {

// Rows of the pass whose next token is one of the prompt, which is to be given its log probability.
struct PromptRun {
  RequestId id;
  Slot slot;
  std::uint32_t first_token = 0;  // of the prompt, the one that follows the first row
  std::uint32_t num_rows = 0;
  std::uint32_t first_output = 0;  // its first row's place among the pass's output rows; the others follow it
  std::uint32_t num_logprobs = 0;  // alternatives beside each token
};

// Rows of the pass whose experts are to be told: all of a request's.
struct RoutedRun {
  RequestId id;
  Slot slot;
  std::uint32_t first_token = 0;
  std::uint32_t first_row = 0, num_rows = 0;  // of the pass
};

// Rows of the pass that a pooling request's vector is made of.
struct PoolRun {
  Slot slot;
  std::uint32_t num_rows = 0;      // none where earlier passes had them all
  std::uint32_t first_output = 0;  // its first row's place among the pass's output rows; the others follow it
  std::uint32_t first_position = 0;
  bool is_last = false;  // the prompt is done
};

// Owned by a worker; one thread at a time. Slots are the core's; each holds a history from admit() to release().
class Batch {
 public:
  // `num_spec_tokens`: drafts of a request in a step, at most. `has_encoder`: plans may name inputs, which somebody else sees to.
  Batch(std::uint32_t max_num_seqs, std::uint32_t max_model_len, std::uint32_t max_num_batched_tokens, std::uint32_t num_spec_tokens = 0,
        bool has_encoder = false);

  // Histories only; a plan that names a slot it does not hold, or admits into a taken one, is a broken invariant.
  void release(Slot slot);
  // `adapter`: that of the request's lora_id; null where that is 0. `inputs`: null where it has none.
  void admit(const AdmittedRequest& request, std::shared_ptr<const Adapter> adapter = nullptr,
             std::shared_ptr<const RequestInputs> inputs = nullptr);
  void append(Slot slot, TokenId token);
  // What is expected behind its history, to be verified where a plan holds places for it (ScheduledRequest::drafts). `num_spec_tokens` at
  // most.
  void expect(Slot slot, std::span<const TokenId> drafts);

  [[nodiscard]] std::span<const TokenId> history(Slot slot) const { return histories_[slot.value]; }
  // Null: it has none.
  [[nodiscard]] const RequestInputs* inputs(Slot slot) const { return inputs_[slot.value].get(); }
  [[nodiscard]] const PromptPictures* pictures(Slot slot) const { return inputs(slot) == nullptr ? nullptr : inputs(slot)->pictures.get(); }

  // The pass over plan.scheduled, checked against the histories. Valid until the next build(). A plan that asks for more drafts,
  // for an encoder where the worker has none and the request no pictures, or for pipeline stages is a broken invariant. Of pictures that
  // rows show the embeddings are there.
  //
  // With asynchronous scheduling a plan is made as if all drafts in flight were right: those that were not move its positions back, and
  // what is expected takes the places of drafts, or none.
  BatchInput build(const StepPlan& plan);
  // Of the last build(): plan.scheduled with the positions and drafts that are computed. Until the next expect() of its slot, if it has
  // drafts.
  [[nodiscard]] std::span<const ScheduledRequest> scheduled() const { return scheduled_; }
  // Of the last build(): the places of rows that are sampled from (one per request, and one behind each of its drafts) among the output
  // rows, and the runs, each in the plan's order.
  [[nodiscard]] std::span<const std::uint32_t> sampled_outputs() const { return sampled_outputs_; }
  [[nodiscard]] std::span<const PoolRun> pool_runs() const { return pool_runs_; }
  [[nodiscard]] std::span<const PromptRun> prompt_runs() const { return prompt_runs_; }
  [[nodiscard]] std::span<const RoutedRun> routed_runs() const { return routed_runs_; }

 private:
  // What of a request's prompt is given log probabilities.
  struct PromptRows {
    std::uint32_t end = 0;  // rows before this position
    std::uint32_t num_logprobs = 0;
  };
  // What the step may lead to.
  struct Outlook {
    std::size_t num_tokens = 0;   // of the history, if all places of the last plan are taken
    std::vector<TokenId> drafts;  // behind the history
  };
  void refuse_unserved(const StepPlan& plan) const;
  ScheduledRequest as_known(const ScheduledRequest& planned);
  void add_outputs(const ScheduledRequest& request);
  void add_prompt_run(const ScheduledRequest& request, std::uint32_t num_rows);
  void add_all(const ScheduledRequest& request, std::uint32_t begin);
  void add_embedded(const ScheduledRequest& request);
  void add_positions(const ScheduledRequest& request);
  void add_last_seen(const ScheduledRequest& request);
  void add_pool_run(const ScheduledRequest& request, std::uint32_t begin);

  std::uint32_t max_model_len_;
  std::uint32_t max_num_batched_tokens_;
  std::uint32_t num_spec_tokens_;
  bool has_encoder_;
  std::vector<std::vector<TokenId>> histories_;  // empty: free
  std::vector<TokenId> tokens_;
  std::vector<BatchSequence> sequences_;
  std::vector<std::uint32_t> output_rows_;
  std::vector<EmbeddedRow> embedded_;
  std::vector<RopePosition> rope_positions_;  // where a request has grids
  std::vector<std::uint32_t> last_seen_;      // where pictures attend to all of themselves
  // Positions count in the request, places in the pass: batch-relative rows are in `output_rows_`.
  std::vector<PromptRows> prompt_rows_;                       // by slot
  std::vector<PoolingKind> pooling_;                          // by slot
  std::vector<bool> tells_experts_;                           // by slot
  std::vector<std::shared_ptr<const Adapter>> adapters_;      // by slot; null: none
  std::vector<std::shared_ptr<const RequestInputs>> inputs_;  // by slot; null: none
  std::vector<Outlook> outlooks_;                             // by slot
  std::vector<ScheduledRequest> scheduled_;
  std::vector<std::uint32_t> sampled_outputs_;
  std::vector<PromptRun> prompt_runs_;
  std::vector<PoolRun> pool_runs_;
  std::vector<RoutedRun> routed_runs_;
};

}  // namespace quire
