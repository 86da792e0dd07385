#pragma once
// What a core decided, in 64 bits: equal where a run is made again, and different where a plan or an outcome is. Adding a field changes the
// digests: the version in journal_form.h goes up with it.
#include <cstdint>

#include "quire/base/plan.h"
#include "quire/core.h"

namespace quire {

// All of it but the tokens of admitted requests, which came in. Without tokens: of drafts and new tokens, how many there are.
std::uint64_t digest_of(const StepPlan& plan, bool with_tokens = true);
// All of it but statistics and times.
std::uint64_t digest_of(const StepOutcome& outcome, bool with_tokens = true);

}  // namespace quire
