#include "runtime/model/expert_choice.h"

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

// Keeps `chosen` in order, the scores in the place of weights; the last one falls out.
void insert(ChosenExpert candidate, std::span<ChosenExpert> chosen) {
  std::size_t at = chosen.size() - 1;
  for (; at > 0 && chosen[at - 1].weight < candidate.weight; --at) chosen[at] = chosen[at - 1];
  chosen[at] = candidate;
}

// What decides between experts.
float choice_score(std::span<const float> scores, const ExpertRouting& routing, std::size_t expert) {
  const float score = routing.scoring == ExpertScoring::sigmoid ? sigmoid(scores[expert]) : scores[expert];
  return routing.choice_bias.empty() ? score : score + routing.choice_bias[expert];
}

// A bit for each group that a token may go to.
std::uint64_t chosen_groups(std::span<const float> scores, const ExpertRouting& routing) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  std::array<ChosenExpert, kMaxExpertGroups> best;
  const std::span<ChosenExpert> chosen(best.data(), routing.groups_per_token);
  std::ranges::fill(chosen, ChosenExpert{0, kNone});
  const std::size_t size = scores.size() / routing.num_groups;
  for (std::uint32_t group = 0; group < routing.num_groups; ++group) {
    float first = kNone, second = kNone;
    for (std::size_t i = group * size; i < (group + 1) * size; ++i) {
      const float score = choice_score(scores, routing, i);
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

void weigh_by_softmax(std::span<const float> scores, const ExpertRouting& routing, std::span<ChosenExpert> chosen) {
  const float best = chosen.front().weight;
  float sum = 0.0F;
  for (const float score : scores) sum += routing.normalize ? 0.0F : reference::exp_polynomial(score - best);
  for (ChosenExpert& expert : chosen) {
    expert.weight = reference::exp_polynomial(expert.weight - best);
    if (routing.normalize) sum += expert.weight;
  }
  for (ChosenExpert& expert : chosen) expert.weight /= sum;
}

void weigh_by_sigmoid(std::span<const float> scores, const ExpertRouting& routing, std::span<ChosenExpert> chosen) {
  float sum = 1e-20F;
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
  const std::uint64_t groups = routing.num_groups == 0 ? 0 : chosen_groups(scores, routing);
  const std::size_t group_size = routing.num_groups == 0 ? 0 : scores.size() / routing.num_groups;
  std::ranges::fill(chosen, ChosenExpert{0, -std::numeric_limits<float>::infinity()});
  for (std::uint32_t i = 0; i < scores.size(); ++i) {
    const bool is_outside = group_size > 0 && (groups >> (i / group_size) & 1U) == 0;
    if (is_outside && !by_sigmoid) continue;
    const float score = is_outside ? 0.0F : choice_score(scores, routing, i);
    if (score > chosen.back().weight) insert({i, score}, chosen);
  }
  by_sigmoid ? weigh_by_sigmoid(scores, routing, chosen) : weigh_by_softmax(scores, routing, chosen);
  for (ChosenExpert& expert : chosen) expert.weight *= routing.scale;
}

float shared_share(float score) {
  return sigmoid(score);
}

}  // namespace quire
