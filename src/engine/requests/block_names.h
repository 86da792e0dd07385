#pragma once
// The names of a prompt's blocks, computed by the client's thread: hashing a long prompt takes longer than a step may wait.
#include <vector>

#include "engine/adapters/adapter_lease.h"
#include "quire/core.h"
#include "quire/engine.h"
#include "quire/hash_function.h"

namespace quire {

// One per full block of a request with this adapter (null: none), as the core of this configuration names them; none without prefix
// caching, nor where names are shorter: the core makes those, and fast. Thread-safe.
std::vector<BlockHash> name_blocks(const EngineRequest& request, const AdapterLease* adapter, const CoreConfig& config);

}  // namespace quire
