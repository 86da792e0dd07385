#pragma once
// Digest of a core's decisions in 64 bits: equal if a run is repeated, different if a plan or an outcome differs. A new field changes the
// digests: then raise the version in journal_format.h.
#include <cstdint>

#include "quire/base/plan.h"
#include "quire/core.h"

namespace quire {

// Covers everything except the tokens of admitted requests, which are inputs. Without tokens, it covers only the number of draft tokens and
// new tokens.
std::uint64_t digest_of(const StepPlan& plan, bool with_tokens = true);
// Covers everything except statistics and times.
std::uint64_t digest_of(const StepOutcome& outcome, bool with_tokens = true);

}  // namespace quire
