#pragma once
// What a core decided, in 64 bits: equal where a run is made again, and different where a plan or an outcome is. Adding a field changes the
// digests: the version in journal_form.h goes up with it.
#include <cstdint>

#include "quire/core.h"
#include "quire/plan.h"

namespace quire {

// All of it but the tokens of admitted requests, which came in.
std::uint64_t digest_of(const StepPlan& plan);
// All of it but statistics and times.
std::uint64_t digest_of(const StepOutcome& outcome);

}  // namespace quire
