#pragma once
// Computes log probabilities of prompts after a pass, in slices, so that only few rows of logits exist at a time even for long prompts.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "quire/base/sampling.h"
#include "runtime/model/model.h"
#include "runtime/sample/sampler.h"
#include "runtime/worker/batch.h"

namespace quire {

// Owned by a worker and called after sampling, on the thread that leads the step. Must run before the next pass begins, because it reads
// the output rows that the model keeps of this pass.
class PromptScorer {
 public:
  // Bytes of logits at a time; at least one row is always used.
  static constexpr std::uint64_t kSliceBytes = std::uint64_t{8} << 20U;

  explicit PromptScorer(std::uint32_t vocab_size, std::uint64_t slice_bytes = kSliceBytes);

  [[nodiscard]] std::uint32_t slice_rows() const { return slice_rows_; }
  // Writes the log probabilities of all prompt runs of the last built batch, row after row. The model must have run the pass of this batch.
  void score(const Batch& batch, Model& model, Sampler& sampler, std::vector<PositionLogprobs>& logprobs);

 private:
  void score_slice(Model& model, Sampler& sampler, std::span<PositionLogprobs> logprobs);

  std::uint32_t vocab_size_;
  std::uint32_t slice_rows_;
  std::unique_ptr<float[]> logits_;  // [slice_rows][vocab_size]; unwritten pages use no memory
  // The current slice. `outputs_` has the indices of its rows among the output rows; `rows_` has the logits and the next prompt token of
  // each row.
  std::vector<std::uint32_t> outputs_;
  std::vector<PromptLogprobRow> rows_;
};

}  // namespace quire
