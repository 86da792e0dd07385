#include "runtime/sample/ngram_proposer.h"

#include <algorithm>

namespace quire {

NgramProposer::NgramProposer(const NgramOptions& options, std::uint32_t max_model_len)
    : options_(options), max_model_len_(max_model_len), borders_(options.prompt_lookup_max) {}

// Searches with the Knuth-Morris-Pratt algorithm from the end of the history to its start. borders_[i] is the length of the longest proper
// prefix of the reversed history that ends at index i, for the first prompt_lookup_max indices.
std::span<const TokenId> NgramProposer::propose(std::span<const TokenId> history) {
  const auto size = static_cast<std::uint32_t>(history.size());
  if (size < options_.prompt_lookup_min || size >= max_model_len_) return {};
  const auto reversed = [&](std::uint32_t i) { return history[size - 1 - i]; };
  const std::uint32_t longest = options_.prompt_lookup_max;
  std::uint32_t matched = 0, best = 0, place = 0;
  borders_[0] = 0;
  for (std::uint32_t i = 1; i < size;) {
    if (reversed(matched) == reversed(i)) {
      ++matched;
      if (matched >= best) {  // the last match of equal length is the earliest one in the history
        best = matched;
        place = i;
      }
      if (i < longest) borders_[i] = matched;
      if (matched == longest) matched = borders_[longest - 1];
      ++i;
    } else if (matched > 0) {
      matched = borders_[matched - 1];
    } else {
      if (i < longest) borders_[i] = 0;
      ++i;
    }
  }
  if (best < options_.prompt_lookup_min) return {};
  const std::uint32_t begin = size - 1 - place + best;
  return history.subspan(begin, std::min({options_.num_speculative_tokens, max_model_len_ - size, size - begin}));
}

}  // namespace quire
