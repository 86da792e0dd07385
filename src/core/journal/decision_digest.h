#pragma once
// A digest of a core's decisions in 64 bits: equal if a run is repeated, different if a plan or an outcome differs. If a new field is
// added, the digests change; then increase the version in journal_format.h.
#include <cstdint>

#include "quire/base/plan.h"
#include "quire/core.h"

namespace quire {

// Returns a digest of everything except the tokens of admitted requests, which are inputs. Without tokens, of draft tokens and new tokens
// only their number counts.
std::uint64_t digest_of(const StepPlan& plan, bool with_tokens = true);
// Returns a digest of everything except statistics and times.
std::uint64_t digest_of(const StepOutcome& outcome, bool with_tokens = true);

}  // namespace quire
