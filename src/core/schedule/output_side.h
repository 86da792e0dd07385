#pragma once
// The memory behind StepOutcome, and what the output side keeps between steps.
#include <vector>

#include "core/schedule/request.h"
#include "quire/core.h"

namespace quire {

struct OutputSide {
  StepOutcome outcome;
  std::vector<RequestUpdate> updates;
  std::vector<TokenId> updated_tokens;
  std::vector<RequestId> retired;
};

}  // namespace quire
