// Chooses the experts of a token from a router's scores. Called within a pass, for each token of a layer with experts, on any thread of the
// pool; pure functions that allocate no memory. Ties and sums have a fixed order, so that results are equal bit by bit.
#include "runtime/model/layers/expert_choice.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "runtime/kernel/reference/math.h"

namespace quire {
namespace {

float sigmoid(float score) {
  return 1.0F / (1.0F + reference::exp_polynomial(-score));
}

// Inserts a candidate into `chosen`, which is sorted by score, and drops the last entry. In this file, `weight` is the score until the
// experts are chosen.
void insert(ChosenExpert candidate, std::span<ChosenExpert> chosen) {
  std::size_t at = chosen.size() - 1;
  for (; at > 0 && chosen[at - 1].weight < candidate.weight; --at) chosen[at] = chosen[at - 1];
  chosen[at] = candidate;
}

// The value by which experts are compared: the score; its sigmoid (plus a bias); or, with softmax and a bias, its softmax share plus the
// bias.
struct Choice {
  std::span<const float> scores;
  const ExpertRouting& routing;
  float best = 0.0F, sum = 1.0F;  // maximum and sum of the softmax

  Choice(std::span<const float> all, const ExpertRouting& how) : scores(all), routing(how) {
    if (routing.scoring == ExpertScoring::sigmoid || routing.choice_bias.empty()) return;
    best = *std::ranges::max_element(scores);
    sum = 0.0F;
    for (const float score : scores) sum += reference::exp_polynomial(score - best);
  }

  [[nodiscard]] float of(std::size_t expert) const {
    const float score = scores[expert];
    if (routing.scoring == ExpertScoring::sigmoid)
      return routing.choice_bias.empty() ? sigmoid(score) : sigmoid(score) + routing.choice_bias[expert];
    return routing.choice_bias.empty() ? score : reference::exp_polynomial(score - best) / sum + routing.choice_bias[expert];
  }
};

// Returns a bit mask of the groups that a token may use.
std::uint64_t chosen_groups(const Choice& choice, const ExpertRouting& routing) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  std::array<ChosenExpert, kMaxExpertGroups> best;
  const std::span<ChosenExpert> chosen(best.data(), routing.groups_per_token);
  std::ranges::fill(chosen, ChosenExpert{0, kNone});
  const std::size_t size = choice.scores.size() / routing.num_groups;
  for (std::uint32_t group = 0; group < routing.num_groups; ++group) {
    float first = kNone, second = kNone;
    for (std::size_t i = group * size; i < (group + 1) * size; ++i) {
      const float score = choice.of(i);
      second = std::max(second, std::min(first, score));
      first = std::max(first, score);
    }
    const float score = routing.scoring == ExpertScoring::sigmoid && size > 1 ? first + second : first;
    if (score > chosen.back().weight) insert({group, score}, chosen);
  }
  std::uint64_t bits = 0;
  for (const ChosenExpert& group : chosen) bits |= std::uint64_t{1} << group.expert;
  return bits;
}

// Returns the divisor of the weights: `sum`, but at least routing.sum_floor of the whole softmax. Weights that are tiny because a bias
// chose the experts are thus not scaled up to a sum of 1.
float sum_at_least(std::span<const float> scores, const ExpertRouting& routing, float best, float sum) {
  if (!routing.normalize || routing.sum_floor == 0.0F) return sum;
  float all = 0.0F;
  for (const float score : scores) all += reference::exp_polynomial(score - best);
  return std::max(sum, routing.sum_floor * all);
}

void weigh_by_softmax(std::span<const float> scores, const ExpertRouting& routing, std::span<ChosenExpert> chosen) {
  // Uses the largest score of the chosen experts. With a bias, experts that were not chosen may have larger scores, so it uses the largest
  // of all scores.
  float best = scores[chosen.front().expert];
  for (const ChosenExpert& expert : chosen) best = std::max(best, scores[expert.expert]);
  if (!routing.choice_bias.empty()) best = *std::ranges::max_element(scores);
  float sum = 0.0F;
  for (const float score : scores) sum += routing.normalize ? 0.0F : reference::exp_polynomial(score - best);
  for (ChosenExpert& expert : chosen) {
    expert.weight = reference::exp_polynomial(scores[expert.expert] - best);
    if (routing.normalize) sum += expert.weight;
  }
  sum = sum_at_least(scores, routing, best, sum);
  for (ChosenExpert& expert : chosen) expert.weight /= sum;
}

void weigh_by_sigmoid(std::span<const float> scores, const ExpertRouting& routing, std::span<ChosenExpert> chosen) {
  float sum = routing.sum_floor == 0.0F ? 1e-20F : routing.sum_floor;
  for (ChosenExpert& expert : chosen) {
    expert.weight = sigmoid(scores[expert.expert]);
    sum += expert.weight;
  }
  if (routing.normalize)
    for (ChosenExpert& expert : chosen) expert.weight /= sum;
}

}  // namespace

void choose_experts(std::span<const float> scores, const ExpertRouting& routing, std::span<ChosenExpert> chosen) {
  if (!std::ranges::all_of(scores, [](float score) { return std::isfinite(score); })) {
    for (std::uint32_t i = 0; i < chosen.size(); ++i) chosen[i] = {i, std::numeric_limits<float>::quiet_NaN()};
    return;
  }
  const bool by_sigmoid = routing.scoring == ExpertScoring::sigmoid;
  const Choice choice(scores, routing);
  const std::uint64_t groups = routing.num_groups == 0 ? 0 : chosen_groups(choice, routing);
  const std::size_t group_size = routing.num_groups == 0 ? 0 : scores.size() / routing.num_groups;
  std::ranges::fill(chosen, ChosenExpert{0, -std::numeric_limits<float>::infinity()});
  for (std::uint32_t i = 0; i < scores.size(); ++i) {
    const bool is_outside = group_size > 0 && (groups >> (i / group_size) & 1U) == 0;
    if (is_outside && !by_sigmoid) continue;
    const float score = is_outside ? 0.0F : choice.of(i);
    if (score > chosen.back().weight) insert({i, score}, chosen);
  }
  by_sigmoid ? weigh_by_sigmoid(scores, routing, chosen) : weigh_by_softmax(scores, routing, chosen);
  for (ChosenExpert& expert : chosen) expert.weight *= routing.scale;
}

float shared_share(float score) {
  return sigmoid(score);
}

}  // namespace quire
