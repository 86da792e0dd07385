#pragma once
// Flags of `quire serve` for KV blocks outside the KV cache: tiers, and connectors by name.
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "quire/base/error.h"
#include "quire/base/options.h"
#include "quire/engine_builder.h"

namespace quire {

struct TierFlags {
  KvDramOptions kv_dram = {};
  KvDiskOptions kv_disk = {};
  KvRemoteOptions kv_remote = {};
  KvPeerOptions kv_peer = {};
  KvPeerCacheOptions kv_peer_cache = {};
  std::vector<std::string> kv_connectors = {};
  std::vector<std::string> kv_connector_libraries = {};
  bool kv_connector_longest = false;
  KvTierPolicy policy = KvTierPolicy::measured;
};

// Adds the flags. `options` and `flags` must outlive the app.
void add_tier_flags(CLI::App& app, EngineOptions& options, TierFlags& flags);

// Returns the connectors that the flags name. Errors name `kv_connector` or `kv_connector_library`.
Result<ConnectorChoice> connectors_of(const TierFlags& flags);

}  // namespace quire
