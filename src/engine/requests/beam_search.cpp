// Chooses the beams of one beam search that continue after each step, and the answer at the end. Called by BeamSearches on the engine
// thread. The code does not depend on the core, on time or on threads. For the same offers the answer must be vLLM's answer, including
// ties, so the order in which candidates are considered matters.
#include "engine/requests/beam_search.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>

#include "base/check.h"

namespace quire {

double beam_score(double cum_logprob, std::uint32_t num_tokens, double length_penalty) {
  return cum_logprob / std::pow(static_cast<double>(num_tokens), length_penalty);
}

namespace {

// Inserts `item` into `best`, which is sorted by descending `key`, after equal items. Keeps at most `most` items.
template <class T>
void keep_best(std::vector<T>& best, const T& item, double T::* key, std::uint32_t most) {
  const auto behind = std::ranges::upper_bound(best, item.*key, std::ranges::greater{}, key);
  best.insert(behind, item);
  if (best.size() > most) best.pop_back();
}

}  // namespace

struct BeamSearch::Candidate {
  std::uint32_t beam = 0;
  TokenLogprob token;
  double cum_logprob = 0.0;
};

BeamSearch::BeamSearch(Options options) : options_(std::move(options)), paths_(1) {
  QUIRE_CHECK(options_.width > 0 && options_.num_prompt_tokens > 0 && options_.max_tokens > 0);
}

bool BeamSearch::is_eos(TokenId token) const {
  return std::ranges::find(options_.eos_ids, token) != options_.eos_ids.end();
}

double BeamSearch::score(double cum_logprob, std::uint32_t num_outputs) const {
  return beam_score(cum_logprob, options_.num_prompt_tokens + num_outputs, options_.length_penalty);
}

void BeamSearch::step(std::span<const std::vector<TokenLogprob>> offers) {
  QUIRE_CHECK(!is_over() && offers.size() == paths_.size(), "the search is not over, and each beam has candidates");
  std::vector<Candidate> open;
  std::vector<std::uint32_t> positions;
  const std::size_t num_kept = options_.logprobs.value_or(0);
  for (std::uint32_t beam = 0; beam < offers.size(); ++beam) {
    positions.push_back(static_cast<std::uint32_t>(alternatives_.size()));
    if (num_kept > 0) alternatives_.emplace_back(offers[beam].begin(), offers[beam].begin() + std::min(num_kept, offers[beam].size()));
    for (const TokenLogprob& token : std::span(offers[beam]).first(std::min<std::size_t>(offers[beam].size(), 2 * options_.width))) {
      const Candidate candidate{beam, token, paths_[beam].cum_logprob + static_cast<double>(token.logprob)};
      if (!options_.ignore_eos && is_eos(token.token))
        keep_best(completed_, {remember(candidate, positions), candidate.cum_logprob, score(candidate.cum_logprob, num_steps_), true},
                  &Path::score, options_.width);
      else
        keep_best(open, candidate, &Candidate::cum_logprob, options_.width);
    }
  }
  std::vector<Path> next;
  beams_.clear();
  for (const Candidate& candidate : open) {
    beams_.push_back({candidate.beam, candidate.token.token});
    next.push_back({.last = remember(candidate, positions), .cum_logprob = candidate.cum_logprob});
  }
  paths_ = std::move(next);
  ++num_steps_;
}

std::uint32_t BeamSearch::remember(const Candidate& candidate, std::span<const std::uint32_t> positions) {
  // Stores each beam as a chain of nodes back to the prompt, because beams share most of their outputs. A new beam then costs one node, not
  // a copy.
  nodes_.push_back({paths_[candidate.beam].last, positions[candidate.beam], candidate.token});
  return static_cast<std::uint32_t>(nodes_.size() - 1);
}

// Returns whether an open beam can still enter the answer. A beam's log probability can only fall, and its score changes monotonically with
// its length, so the best possible score is at the current or at the maximum length. A completed hypothesis is better than a later
// hypothesis with an equal score.
bool BeamSearch::can_improve() const {
  if (completed_.size() < options_.width) return true;
  const double most = paths_.front().cum_logprob;
  return std::max(score(most, num_steps_), score(most, options_.max_tokens)) > completed_.back().score;
}

bool BeamSearch::is_over() const {
  return num_steps_ == options_.max_tokens || paths_.empty() || !can_improve();
}

std::vector<TokenId> BeamSearch::outputs(std::uint32_t beam) const {
  return describe(paths_[beam]).tokens;
}

BeamSearch::Hypothesis BeamSearch::describe(const Path& path) const {
  Hypothesis found{.tokens = {}, .logprobs = {}, .cum_logprob = path.cum_logprob, .score = path.score, .by_eos = path.by_eos};
  for (std::uint32_t at = path.last; at != kNone; at = nodes_[at].before) {
    const Node& node = nodes_[at];
    found.tokens.push_back(node.token.token);
    if (!options_.logprobs.has_value()) continue;
    PositionLogprobs& position = found.logprobs.emplace_back();
    position.entries.push_back(node.token);
    if (*options_.logprobs > 0) std::ranges::copy(alternatives_[node.position], std::back_inserter(position.entries));
  }
  std::ranges::reverse(found.tokens);
  std::ranges::reverse(found.logprobs);
  return found;
}

std::vector<BeamSearch::Hypothesis> BeamSearch::best() const {
  QUIRE_CHECK(is_over(), "the search is over");
  std::vector<Path> all = completed_;
  for (Path path : paths_) {
    const bool ends_in_eos = is_eos(nodes_[path.last].token.token);
    path.score = score(path.cum_logprob, num_steps_ - (ends_in_eos ? 1 : 0));
    keep_best(all, path, &Path::score, options_.width);
  }
  std::vector<Hypothesis> best;
  std::ranges::transform(all, std::back_inserter(best), [this](const Path& path) { return describe(path); });
  return best;
}

}  // namespace quire
