#pragma once
// A naive beam search like the one in vLLM's server. It keeps every hypothesis with all its tokens, never ends early, and sorts everything
// in full. Equal hypotheses stay in their order.
#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <vector>

#include "quire/base/ids.h"
#include "quire/base/sampling.h"

namespace quire {

struct NaiveHypothesis {
  std::vector<TokenId> tokens;  // output tokens, including a last EOS
  double cum_logprob = 0.0;
  double score = 0.0;
  bool by_eos = false;
};

struct NaiveSearch {
  std::vector<TokenId> prompt;
  std::uint32_t width = 1;
  std::uint32_t max_tokens = 1;
  double length_penalty = 1.0;
  bool ignore_eos = false;
  std::vector<TokenId> eos_ids{};
};

// Returns the `count` likeliest next tokens, likeliest first.
using NaiveModel = std::function<std::vector<TokenLogprob>(std::span<const TokenId> history, std::uint32_t count)>;

template <class Key>
void sort_stably(std::vector<NaiveHypothesis>& all, Key key) {
  for (std::size_t i = 1; i < all.size(); ++i)
    for (std::size_t j = i; j > 0 && all[j].*key > all[j - 1].*key; --j) std::swap(all[j], all[j - 1]);
}

inline std::vector<NaiveHypothesis> naive_beam_search(const NaiveSearch& search, const NaiveModel& model) {
  const auto is_eos = [&](TokenId token) { return std::ranges::find(search.eos_ids, token) != search.eos_ids.end(); };
  std::vector<NaiveHypothesis> beams(1), completed;
  for (std::uint32_t step = 0; step < search.max_tokens; ++step) {
    std::vector<NaiveHypothesis> next;
    for (const NaiveHypothesis& beam : beams) {
      std::vector<TokenId> history = search.prompt;
      history.insert(history.end(), beam.tokens.begin(), beam.tokens.end());
      for (const TokenLogprob& entry : model(history, 2 * search.width)) {
        NaiveHypothesis longer{beam.tokens, beam.cum_logprob + static_cast<double>(entry.logprob)};
        longer.tokens.push_back(entry.token);
        longer.by_eos = !search.ignore_eos && is_eos(entry.token);
        (longer.by_eos ? completed : next).push_back(longer);
      }
    }
    sort_stably(next, &NaiveHypothesis::cum_logprob);
    next.resize(std::min<std::size_t>(next.size(), search.width));
    beams = next;
  }
  completed.insert(completed.end(), beams.begin(), beams.end());
  for (NaiveHypothesis& found : completed) {
    const std::size_t length = search.prompt.size() + found.tokens.size() - (is_eos(found.tokens.back()) ? 1 : 0);
    found.score = found.cum_logprob / std::pow(static_cast<double>(length), search.length_penalty);
  }
  sort_stably(completed, &NaiveHypothesis::score);
  completed.resize(std::min<std::size_t>(completed.size(), search.width));
  return completed;
}

}  // namespace quire
