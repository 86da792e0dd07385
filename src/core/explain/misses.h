#pragma once
// Why the tokens of an admitted request were not found: each block of them is looked up in what is remembered of blocks.
#include <cstdint>

#include "core/explain/block_memory.h"
#include "quire/base/request.h"
#include "quire/lab/explain.h"

namespace quire {

// The last look-up of a request before it was admitted.
struct LookedUp {
  bool is_known = false;  // it was asked what it has: not of one that shares its beginning with another
  bool in_cache = false;  // the cache was, too
  std::uint32_t num_cached = 0, num_external = 0;
  std::uint64_t at = 0;  // BlockMemory::now()
};

// Fills num_tokens down to misses. `num_computed` of `num_tokens` need not be computed; the view is the request's, when it is admitted.
void explain_admission(const RequestView& view, const LookedUp& look_up, std::uint32_t num_computed, std::uint32_t num_tokens,
                       const BlockMemory& memory, const ExplainOptions& options, RequestExplanation& facts);

}  // namespace quire
