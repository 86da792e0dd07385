#pragma once
// Drafts of a draft model for the requests of a step, as many as pay (draft_length.h).
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

// Owned by the worker, called in a step by the thread that leads it.
class ModelProposer {
 public:
  explicit ModelProposer(std::unique_ptr<DraftModel> model);

  void release(Slot slot);
  // The pass of the step: its rows, and those that are sampled from.
  void saw_pass(std::uint32_t num_rows, std::uint32_t num_sampled_rows, double seconds) {
    length_.saw_pass(num_rows, num_sampled_rows, seconds);
  }
  // What was sampled, by request of batch.scheduled() that samples: so many tokens, which are in the histories. Proposes what follows.
  void propose(const Batch& batch, std::span<const std::uint32_t> num_outcomes);
  // Of the last propose(), by such a request.
  [[nodiscard]] std::span<const TokenId> drafts(std::size_t request) const;

 private:
  void choose_requests(const DraftLength::Choice& choice);

  std::unique_ptr<DraftModel> model_;
  DraftLength length_;
  std::vector<std::uint32_t> num_outputs_;  // by slot, since it was admitted
  std::vector<DraftRequest> requests_;      // that sample
};

}  // namespace quire
