#pragma once
// Proposes draft tokens by n-gram lookup: searches the history for an earlier occurrence of its last tokens, and proposes the tokens after
// that occurrence. The rules are vLLM's (v0.19.0, v1/spec_decode/ngram_proposer.py).
#include <cstdint>
#include <span>
#include <vector>

#include "quire/base/ids.h"
#include "quire/base/options.h"

namespace quire {

// Owned by a worker and called after sampling, for each request with a sampled token. Each call reads the whole history, which takes a few
// microseconds for thousands of tokens.
class NgramProposer {
 public:
  explicit NgramProposer(const NgramOptions& options, std::uint32_t max_model_len);
  [[nodiscard]] const NgramOptions& options() const { return options_; }

  // Returns draft tokens after `history` (prompt and outputs). Finds the longest suffix, of prompt_lookup_min to prompt_lookup_max tokens,
  // that also occurs earlier in the history. The result is a view of the tokens after the earliest occurrence, or empty if the suffix
  // occurs nowhere else. It has at most num_speculative_tokens tokens and fits into the context. Takes O(tokens) time.
  [[nodiscard]] std::span<const TokenId> propose(std::span<const TokenId> history);

 private:
  NgramOptions options_;
  std::uint32_t max_model_len_;
  std::vector<std::uint32_t> borders_;
};

}  // namespace quire
