#pragma once
// Proposes tokens of a draft model for the requests of a step. draft_length.h chooses how many.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "quire/base/ids.h"
#include "quire/base/plan.h"
#include "runtime/worker/batch.h"
#include "runtime/worker/draft_length.h"
#include "runtime/worker/draft_model.h"

namespace quire {

// Owned by the worker. Called by the thread that leads a step within the step.
class ModelProposer {
 public:
  explicit ModelProposer(std::unique_ptr<DraftModel> model);

  void release(Slot slot);
  // Reports the pass of the step: its number of rows, and how many rows were sampled from.
  void record_pass(std::uint32_t num_rows, std::uint32_t num_sampled_rows, double seconds) {
    length_.record_pass(num_rows, num_sampled_rows, seconds);
  }
  // Proposes tokens for each request of batch.scheduled() that samples. `num_outcomes`: number of tokens sampled for each of these
  // requests; the tokens are already in the histories.
  void propose(const Batch& batch, std::span<const std::uint32_t> num_outcomes);
  // Returns the draft tokens of the last propose(). `request` is an index among the requests that sample.
  [[nodiscard]] std::span<const TokenId> drafts(std::size_t request) const;

 private:
  void choose_requests(const DraftLength::Choice& choice);

  std::unique_ptr<DraftModel> model_;
  DraftLength length_;
  std::vector<std::uint32_t> num_outputs_;  // by slot, since admission
  std::vector<DraftRequest> requests_;      // requests that sample
};

}  // namespace quire
