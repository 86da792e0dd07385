#include "runtime/model/expert_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/kernel/reference/math.h"

namespace quire {
namespace {

// Keeps `chosen` in order, the scores in the place of weights; the last one falls out.
void insert(ChosenExpert candidate, std::span<ChosenExpert> chosen) {
  std::size_t at = chosen.size() - 1;
  for (; at > 0 && chosen[at - 1].weight < candidate.weight; --at) chosen[at] = chosen[at - 1];
  chosen[at] = candidate;
}

}  // namespace

void choose_experts(std::span<const float> scores, bool normalize, std::span<ChosenExpert> chosen) {
  if (!std::ranges::all_of(scores, [](float score) { return std::isfinite(score); })) {
    for (std::uint32_t i = 0; i < chosen.size(); ++i) chosen[i] = {i, std::numeric_limits<float>::quiet_NaN()};
    return;
  }
  std::ranges::fill(chosen, ChosenExpert{0, -std::numeric_limits<float>::infinity()});
  for (std::uint32_t i = 0; i < scores.size(); ++i)
    if (scores[i] > chosen.back().weight) insert({i, scores[i]}, chosen);
  const float best = chosen.front().weight;
  float sum = 0.0F;
  for (const float score : scores) sum += normalize ? 0.0F : reference::exp_polynomial(score - best);
  for (ChosenExpert& expert : chosen) {
    expert.weight = reference::exp_polynomial(expert.weight - best);
    if (normalize) sum += expert.weight;
  }
  for (ChosenExpert& expert : chosen) expert.weight /= sum;
}

float shared_share(float score) {
  return 1.0F / (1.0F + reference::exp_polynomial(-score));
}

}  // namespace quire
