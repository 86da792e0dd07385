#pragma once
// Log probabilities of tokens as JSON, in the form that several APIs have.
#include <string>
#include <vector>

#include "quire/sampling.h"
#include "quire/tokenizer.h"

namespace quire {

// An array with one object per position.
void append_token_logprobs(std::string& out, const Tokenizer& tokenizer, const std::vector<PositionLogprobs>& positions);

}  // namespace quire
