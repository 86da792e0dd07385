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

// Chooses the experts with the highest scores, best first; of equal scores the first wins. With a bias, experts are compared by sigmoid or
// softmax share plus bias. There must be at least as many scores as entries of `chosen`, also within the groups. The weights are shares of
// the softmax over all scores or, normalised, over the chosen ones. With sigmoids they are the sigmoids, normalised or not. All weights are
// multiplied by the scale. With sigmoids, an expert outside the groups is compared with score 0, as in transformers. If a score is NaN or
// infinite, the weights are NaN, which reaches the token's logits.
void choose_experts(std::span<const float> scores, const ExpertRouting& routing, std::span<ChosenExpert> chosen);

// Returns the weight of the shared expert for a token: 1 / (1 + exp(-score)).
float shared_share(float score);

}  // namespace quire
