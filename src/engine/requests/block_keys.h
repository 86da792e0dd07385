#pragma once
// Computes the hashes of a prompt's blocks on the client's thread: hashing a long prompt takes longer than a step may wait.
#include <vector>

#include "engine/adapters/adapter_lease.h"
#include "quire/core.h"
#include "quire/engine.h"
#include "quire/hash_function.h"

namespace quire {

// Returns one hash per full block of a request with this adapter (null: none), as a core with this configuration computes them. Returns
// none without prefix caching, and none for shorter hashes, which the core computes quickly itself. Thread-safe.
std::vector<BlockHash> name_blocks(const EngineRequest& request, const AdapterLease* adapter, const CoreConfig& config);

}  // namespace quire
