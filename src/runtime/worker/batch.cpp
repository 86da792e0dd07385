#include "runtime/worker/batch.h"

#include <algorithm>

#include "base/check.h"

namespace quire {

Batch::Batch(std::uint32_t max_num_seqs, std::uint32_t max_model_len, std::uint32_t max_num_batched_tokens)
    : max_model_len_(max_model_len), max_num_batched_tokens_(max_num_batched_tokens), histories_(max_num_seqs) {
  tokens_.reserve(max_num_batched_tokens);
  sequences_.reserve(max_num_seqs);
  output_rows_.reserve(max_num_seqs);
}

void Batch::release(Slot slot) {
  QUIRE_CHECK(slot.value < histories_.size() && !histories_[slot.value].empty(), "the slot is free already");
  histories_[slot.value].clear();
}

void Batch::admit(const AdmittedRequest& request) {
  QUIRE_CHECK(request.slot.value < histories_.size() && histories_[request.slot.value].empty(), "the slot is taken");
  QUIRE_CHECK(!request.tokens.empty() && request.tokens.size() <= max_model_len_);
  QUIRE_CHECK(request.num_prompt_tokens > 0 && request.num_prompt_tokens <= request.tokens.size());
  std::vector<TokenId>& history = histories_[request.slot.value];
  history.reserve(std::min<std::uint64_t>(max_model_len_, std::uint64_t{request.num_prompt_tokens} + request.sampling->max_tokens));
  history.assign(request.tokens.begin(), request.tokens.end());
}

void Batch::append(Slot slot, TokenId token) {
  std::vector<TokenId>& history = histories_[slot.value];
  QUIRE_CHECK(!history.empty() && history.size() < max_model_len_, "a token beyond max_model_len");
  history.push_back(token);
}

// What a worker would have to do and does not know how: passing over it would change answers.
void Batch::refuse_unserved(const StepPlan& plan) {
  for (const ScheduledRequest& request : plan.scheduled) {
    QUIRE_CHECK(request.drafts.empty(), "this worker verifies no drafts");
    QUIRE_CHECK(request.encoder_inputs.empty(), "this worker runs no encoder");
    QUIRE_CHECK(request.new_tokens.empty(), "this worker is no stage of a pipeline");
  }
}

BatchInput Batch::build(const StepPlan& plan) {
  refuse_unserved(plan);
  tokens_.clear();
  sequences_.clear();
  output_rows_.clear();
  for (const ScheduledRequest& request : plan.scheduled) {
    const std::span<const TokenId> tokens = history(request.slot);
    const std::size_t end = std::size_t{request.num_computed_tokens} + request.num_tokens;
    QUIRE_CHECK(request.num_tokens > 0 && end <= tokens.size(), "tokens that the worker does not know");
    QUIRE_CHECK(request.samples == (end == tokens.size()), "a token is sampled after the last known one, and only there");
    sequences_.push_back({request.slot, request.num_computed_tokens, request.num_tokens});
    const std::span<const TokenId> scheduled = tokens.subspan(request.num_computed_tokens, request.num_tokens);
    tokens_.insert(tokens_.end(), scheduled.begin(), scheduled.end());
    if (request.samples) output_rows_.push_back(static_cast<std::uint32_t>(tokens_.size()) - 1);
  }
  QUIRE_CHECK(tokens_.size() == plan.num_scheduled_tokens && tokens_.size() <= max_num_batched_tokens_);
  return {tokens_, sequences_, output_rows_};
}

}  // namespace quire
