#pragma once
// Log probabilities of prompts after a pass, in slices: however long the prompts are, few rows of logits exist at a time.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "quire/base/sampling.h"
#include "runtime/model/model.h"
#include "runtime/sample/sampler.h"
#include "runtime/worker/batch.h"

namespace quire {

// Owned by a worker; called after sampling, on the thread that leads the step. The model's output rows of this pass are still there, which
// is why it must run before the next pass begins.
class PromptScorer {
 public:
  // Of logits, at one time; but one row at least.
  static constexpr std::uint64_t kSliceBytes = std::uint64_t{8} << 20U;

  explicit PromptScorer(std::uint32_t vocab_size, std::uint64_t slice_bytes = kSliceBytes);

  [[nodiscard]] std::uint32_t slice_rows() const { return slice_rows_; }
  // The rows of all runs of the batch last built, one after the other, from the pass over it.
  void score(const Batch& batch, Model& model, Sampler& sampler, std::vector<PositionLogprobs>& logprobs);

 private:
  void score_slice(Model& model, Sampler& sampler, std::span<PositionLogprobs> logprobs);

  std::uint32_t vocab_size_;
  std::uint32_t slice_rows_;
  std::unique_ptr<float[]> logits_;  // [slice_rows][vocab_size]; pages never written cost nothing
  // Of the slice: its rows' places among the output rows, and what follows each.
  std::vector<std::uint32_t> outputs_;
  std::vector<FollowedRow> rows_;
};

}  // namespace quire
