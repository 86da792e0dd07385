#pragma once
// Chooses the experts of a token from a router's scores.
#include <span>

#include "runtime/model/config/model_config.h"
#include "runtime/model/layers/workspace.h"

namespace quire {

struct ExpertRouting {
  ExpertScoring scoring = ExpertScoring::softmax;
  bool normalize = false;
  float scale = 1.0F;
  std::uint32_t num_groups = 0;  // groups of equal size; 0: no groups
  std::uint32_t groups_per_token = 0;
  std::span<const float> choice_bias{};  // empty: no bias
  float sum_floor = 0.0F;                // LayerShape::expert_sum_floor

  static ExpertRouting of(const LayerShape& shape, std::span<const float> choice_bias) {
    return {shape.expert_scoring, shape.normalize_experts, shape.expert_scale, shape.num_expert_groups, shape.groups_per_token,
            choice_bias,          shape.expert_sum_floor};
  }
};

// Chooses the experts with the highest scores, best first; of equal scores, the lowest index comes first. With a bias, experts are compared
// by (sigmoid or softmax share) + bias. `scores` must have at least as many entries as `chosen`, also within the chosen groups. Weights:
// - softmax: the share of the softmax over all scores or, if normalised, over the chosen scores;
// - sigmoid: the sigmoid of the score, normalised or not.
// All weights are multiplied by the scale. With sigmoids, an expert outside the chosen groups is compared with score 0, as in transformers.
// If a score is NaN or infinite, the weights are NaN, so the token's logits become NaN.
void choose_experts(std::span<const float> scores, const ExpertRouting& routing, std::span<ChosenExpert> chosen);

// Returns the weight of the shared expert for a token: 1 / (1 + exp(-score)).
float shared_share(float score);

}  // namespace quire
