#pragma once
// Proposes draft tokens by n-gram lookup: it searches the history for the last tokens, and proposes the tokens that followed them there.
// The rules are vLLM's (v0.19.0, v1/spec_decode/ngram_proposer.py).
#include <cstdint>
#include <span>
#include <vector>

#include "quire/base/ids.h"
#include "quire/base/options.h"

namespace quire {

// Owned by a worker and called after sampling, for each request that sampled. It reads the whole history every time: a few microseconds for
// thousands of tokens, less than a row of the model takes.
class NgramProposer {
 public:
  explicit NgramProposer(const NgramOptions& options, std::uint32_t max_model_len);
  [[nodiscard]] const NgramOptions& options() const { return options_; }

  // Returns draft tokens after `history` (prompt and outputs). It takes the longest suffix, of prompt_lookup_min to prompt_lookup_max
  // tokens, that also occurs earlier in the history. The result is a view of the tokens after its earliest occurrence, or empty if there is
  // none. It has at most num_speculative_tokens, and no more than the context has room for. Takes O(tokens) time.
  [[nodiscard]] std::span<const TokenId> propose(std::span<const TokenId> history);

 private:
  NgramOptions options_;
  std::uint32_t max_model_len_;
  std::vector<std::uint32_t> borders_;
};

}  // namespace quire
