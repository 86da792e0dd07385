#pragma once
// Checks that the machine has the memory that an engine needs. Caches and tiers allocate lazily: without the check, an engine too large for
// the machine starts and is killed hours later.
#include <cstdint>
#include <vector>

#include "engine/resolve_options.h"
#include "quire/base/error.h"
#include "quire/base/options.h"
#include "quire/connector_registry.h"
#include "quire/engine_builder.h"

namespace quire {

struct MemoryShare {
  const char* option = nullptr;  // the option that sets the size, as errors name it; null: no option does
  const char* name = "";         // name in messages, such as "KV cache"
  std::uint64_t bytes = 0;
};

// Returns the host memory of tiers and connectors, in addition to the KV cache: --kv-dram, and cpu_bytes_to_use of named connectors.
std::vector<MemoryShare> tier_shares(const EngineSeams& seams);

// Returns the memory shares of an engine:
// - weights, except those read from a file of the weights cache;
// - the KV cache, and the draft model with its cache;
// - any other part with an option.
// `given` are the options before resolve_options().
std::vector<MemoryShare> memory_shares(const EngineOptions& given, const ResolvedEngine& resolved, std::uint64_t draft_bytes,
                                       const EngineSeams& seams);

std::uint64_t sum_of(const std::vector<MemoryShare>& shares);

// Returns an error if the shares exceed `total_bytes` (0: not known, nothing is checked). It names the option of the largest share that has
// an option.
Result<void> check_memory(const std::vector<MemoryShare>& shares, std::uint64_t total_bytes);

}  // namespace quire
