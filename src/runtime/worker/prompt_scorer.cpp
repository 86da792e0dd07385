#include "runtime/worker/prompt_scorer.h"

#include <algorithm>

namespace quire {

PromptScorer::PromptScorer(std::uint32_t vocab_size, std::uint64_t slice_bytes)
    : vocab_size_(vocab_size),
      slice_rows_(static_cast<std::uint32_t>(std::max<std::uint64_t>(1, slice_bytes / (std::uint64_t{vocab_size} * sizeof(float))))),
      logits_(std::make_unique_for_overwrite<float[]>(std::size_t{slice_rows_} * vocab_size)) {
  outputs_.reserve(slice_rows_);
  rows_.reserve(slice_rows_);
}

// A slice may contain rows of several runs, so that short prompts share one product with the output matrix.
void PromptScorer::score(const Batch& batch, Model& model, Sampler& sampler, std::vector<PositionLogprobs>& logprobs) {
  std::size_t num_rows = 0;
  for (const PromptRun& run : batch.prompt_runs()) num_rows += run.num_rows;
  logprobs.resize(num_rows);
  std::span<PositionLogprobs> left(logprobs);
  for (const PromptRun& run : batch.prompt_runs()) {
    const std::span<const TokenId> tokens = batch.history(run.slot).subspan(run.first_token, run.num_rows);
    for (std::uint32_t i = 0; i < run.num_rows; ++i) {
      rows_.push_back({{logits_.get() + rows_.size() * vocab_size_, vocab_size_}, tokens[i], run.num_logprobs});
      outputs_.push_back(run.first_output + i);
      if (rows_.size() < slice_rows_) continue;
      score_slice(model, sampler, left.first(slice_rows_));
      left = left.subspan(slice_rows_);
    }
  }
  score_slice(model, sampler, left);
}

void PromptScorer::score_slice(Model& model, Sampler& sampler, std::span<PositionLogprobs> logprobs) {
  model.read_logits(outputs_, {logits_.get(), outputs_.size() * vocab_size_});
  sampler.score(rows_, logprobs);
  outputs_.clear();
  rows_.clear();
}

}  // namespace quire
