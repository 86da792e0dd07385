#pragma once
// Checks that the machine has the memory that an engine needs. Caches and tiers allocate memory only when it is first used. Without this
// check, an engine that is too large for the machine would start, and be killed hours later.
#include <cstdint>
#include <vector>

#include "engine/resolve_options.h"
#include "quire/base/error.h"
#include "quire/base/options.h"
#include "quire/connector_registry.h"
#include "quire/engine_builder.h"

namespace quire {

struct MemoryShare {
  const char* option = nullptr;  // option that sets the size, as named in errors; null: no option sets it
  const char* name = "";         // name in messages, such as "KV cache"
  std::uint64_t bytes = 0;
};

// Returns the host memory that tiers and connectors need in addition to the KV cache: --kv-dram, and cpu_bytes_to_use of named connectors.
std::vector<MemoryShare> tier_shares(const EngineSeams& seams);

// Returns the memory shares of an engine:
// - weights, except weights that are read from a file of the weights cache;
// - the KV cache, and the draft model with its cache;
// - all other parts whose size an option sets.
// `given` are the options before resolve_options().
std::vector<MemoryShare> memory_shares(const EngineOptions& given, const ResolvedEngine& resolved, std::uint64_t draft_bytes,
                                       const EngineSeams& seams);

std::uint64_t sum_of(const std::vector<MemoryShare>& shares);

// Returns an error if the shares exceed `total_bytes`. The error names the option of the largest share that has an option. Checks nothing
// if `total_bytes` is 0 (not known).
Result<void> check_memory(const std::vector<MemoryShare>& shares, std::uint64_t total_bytes);

}  // namespace quire
