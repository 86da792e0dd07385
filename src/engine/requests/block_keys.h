#pragma once
// Computes the hashes of a prompt's blocks on the client's thread, because hashing a long prompt takes longer than a step may be delayed.
#include <vector>

#include "engine/adapters/adapter_lease.h"
#include "quire/core.h"
#include "quire/engine.h"
#include "quire/hash_function.h"

namespace quire {

// Returns one hash per full block of a request with this adapter (null: no adapter), as a core with this configuration computes them.
// Returns no hashes without prefix caching, and for hash algorithms of fewer than 32 bytes, which the core itself computes quickly.
// Thread-safe.
std::vector<BlockHash> name_blocks(const EngineRequest& request, const AdapterLease* adapter, const CoreConfig& config);

}  // namespace quire
