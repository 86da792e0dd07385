#pragma once
// The persistent batch: the token history of every slot, and the forward pass that a plan asks of it.
#include <cstdint>
#include <span>
#include <vector>

#include "quire/ids.h"
#include "quire/plan.h"
#include "runtime/model/model.h"

namespace quire {

class Batch {
 public:
  Batch(std::uint32_t max_num_seqs, std::uint32_t max_model_len, std::uint32_t max_num_batched_tokens);

  // Histories only; a plan that names a slot it does not hold, or admits into a taken one, is a broken invariant.
  void release(Slot slot);
  void admit(const AdmittedRequest& request);
  void append(Slot slot, TokenId token);

  [[nodiscard]] std::span<const TokenId> history(Slot slot) const { return histories_[slot.value]; }

  // The pass over plan.scheduled, checked against the histories. Valid until the next build(). A plan that asks for drafts, encoders
  // or pipeline stages is a broken invariant.
  BatchInput build(const StepPlan& plan);

 private:
  static void refuse_unserved(const StepPlan& plan);

  std::uint32_t max_model_len_;
  std::uint32_t max_num_batched_tokens_;
  std::vector<std::vector<TokenId>> histories_;  // empty: free
  std::vector<TokenId> tokens_;
  std::vector<BatchSequence> sequences_;
  std::vector<std::uint32_t> output_rows_;
};

}  // namespace quire
