#pragma once
// From a router's scores to the experts of a token.
#include <span>

#include "runtime/model/config/model_config.h"
#include "runtime/model/layers/workspace.h"

namespace quire {

struct ExpertRouting {
  ExpertScoring scoring = ExpertScoring::softmax;
  bool normalize = false;
  float scale = 1.0F;
  std::uint32_t num_groups = 0;  // of equal size; 0: no groups
  std::uint32_t groups_per_token = 0;
  std::span<const float> choice_bias{};  // empty: none
  float sum_floor = 0.0F;                // LayerShape::expert_sum_floor

  static ExpertRouting of(const LayerShape& shape, std::span<const float> choice_bias) {
    return {shape.expert_scoring, shape.normalize_experts, shape.expert_scale, shape.num_expert_groups, shape.groups_per_token,
            choice_bias,          shape.expert_sum_floor};
  }
};

// Those with the highest scores (with a bias: sigmoids or shares of the softmax, and the bias), best first, of equal ones the first; there
// are at least as many scores as places in `chosen`, also within the groups. Their weights are their shares of the softmax over all scores,
// or, normalised, over their own; or the sigmoids of their scores, normalised or not; times the scale. With sigmoids an expert outside of
// the groups is chosen as one of score 0 would be, as in transformers. Where a score is not a number, or infinite, weights are NaN, which
// reaches the token's logits.
void choose_experts(std::span<const float> scores, const ExpertRouting& routing, std::span<ChosenExpert> chosen);

// How much of a shared expert a token gets: 1 / (1 + exp(-score)).
float shared_share(float score);

}  // namespace quire
