#pragma once
// Drafts by looking up what has been said: the last tokens are searched for in all that went before, and what followed them there is
// proposed. The rules are vLLM's (v0.19.0, v1/spec_decode/ngram_proposer.py).
#include <cstdint>
#include <span>
#include <vector>

#include "quire/base/ids.h"
#include "quire/base/options.h"

namespace quire {

// Owned by a worker, called after sampling for each request that sampled. It reads the whole history every time: a few microseconds for
// thousands of tokens, less than a row of the model takes.
class NgramProposer {
 public:
  explicit NgramProposer(const NgramOptions& options, std::uint32_t max_model_len);
  [[nodiscard]] const NgramOptions& options() const { return options_; }

  // What may follow `history` (prompt and outputs): the tokens behind the earliest place where its longest suffix of
  // prompt_lookup_min to prompt_lookup_max tokens stands already. At most num_speculative_tokens, no more than the context has room for,
  // and none where there is no such place. O(tokens); a view into `history`.
  [[nodiscard]] std::span<const TokenId> propose(std::span<const TokenId> history);

 private:
  NgramOptions options_;
  std::uint32_t max_model_len_;
  std::vector<std::uint32_t> borders_;
};

}  // namespace quire
