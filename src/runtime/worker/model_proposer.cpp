// Connects the worker's step with its draft model: measures how many draft tokens are accepted, and requests the number that pays off.
#include "runtime/worker/model_proposer.h"

#include <algorithm>
#include <utility>

namespace quire {

ModelProposer::ModelProposer(std::unique_ptr<DraftModel> model)
    : model_(std::move(model)),
      length_(model_->limits().max_drafts, model_->limits().always_draft),
      num_outputs_(model_->limits().max_num_seqs) {
  requests_.reserve(model_->limits().max_num_seqs);
}

void ModelProposer::release(Slot slot) {
  model_->release(slot);
  if (const std::uint32_t count = std::exchange(num_outputs_[slot.value], 0); count > 0) length_.record_finished(count);
}

void ModelProposer::propose(const Batch& batch, std::span<const std::uint32_t> num_outcomes) {
  requests_.clear();
  for (const ScheduledRequest& request : batch.scheduled()) {
    if (!request.samples) continue;
    const std::uint32_t count = num_outcomes[requests_.size()];
    const auto num_verified = static_cast<std::uint32_t>(request.drafts.size());
    if (count > 0) length_.record_verified(num_verified, std::min(count - 1, num_verified));
    num_outputs_[request.slot.value] += count;
    requests_.push_back({.slot = request.slot, .history = batch.history(request.slot)});
  }
  choose_requests(length_.choose(static_cast<std::uint32_t>(requests_.size())));
  const DraftTimes times = model_->propose(requests_);
  length_.record_catch_up(times.num_catch_up_rows, times.catch_up_s);
  length_.record_drafting(times.num_requests, times.num_passes, times.pass_s);
}

// Sets the number of draft tokens of each request. A probe uses only the request with the fewest missing tokens. A request whose first
// token was sampled in this step gets none, so that this token does not wait for the draft model to read the prompt.
void ModelProposer::choose_requests(const DraftLength::Choice& choice) {
  if (choice.num_drafts == 0) return;
  const auto num_missing = [this](const DraftRequest& request) { return model_->num_missing(request.slot, request.history); };
  if (choice.is_probe) {
    std::ranges::min_element(requests_, {}, num_missing)->num_drafts = choice.num_drafts;
    return;
  }
  for (DraftRequest& request : requests_)
    if (num_outputs_[request.slot.value] > 1 && num_missing(request) <= choice.max_missing) request.num_drafts = choice.num_drafts;
}

std::span<const TokenId> ModelProposer::drafts(std::size_t request) const {
  return model_->drafts(request);
}

}  // namespace quire
