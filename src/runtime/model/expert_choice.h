#pragma once
// From a router's scores to the experts of a token.
#include <span>

#include "runtime/model/workspace.h"

namespace quire {

// Those with the highest scores, best first, of equal ones the first; there are at least as many scores as places in `chosen`. Their
// weights are their shares of the softmax over all scores, or, normalised, over their own. Where a score is not a number, or infinite,
// weights are NaN, which reaches the token's logits.
void choose_experts(std::span<const float> scores, bool normalize, std::span<ChosenExpert> chosen);

// How much of a shared expert a token gets: 1 / (1 + exp(-score)).
float shared_share(float score);

}  // namespace quire
