#pragma once
// What all tiers of an engine ask of its cache, how their connectors are made, and how these tell of their blocks.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/tiers/kv_tier.h"
#include "quire/base/core_config.h"
#include "quire/base/error.h"
#include "quire/base/kv_layout.h"
#include "quire/engine_builder.h"
#include "quire/offload.h"

namespace quire {

class OffloadConnector;

inline constexpr double kLoadHorizon_s = 2.0;  // of loading, for its speed

// Whether a cache like this can have a tier. Errors name `field`.
Result<void> check_tier(const CoreConfig& config, const char* field);

// By cache group, of a block.
std::vector<std::uint64_t> group_block_bytes(const KvLayout& layout);

// KvTier::take_events() of a tier whose blocks lie in such a medium ("CPU", "DISK").
void take_tier_events(OffloadConnector& connector, const TierNames& names, const char* medium, std::vector<KvEvent>& out);

// Of a tier with so many bytes.
template <class TierOptions>
OffloadConnectorOptions tier_connector_options(std::uint64_t bytes, const TierOptions& options, const CoreConfig& config) {
  const bool is_measured = options.policy == KvTierPolicy::measured;
  return {.cpu_bytes_to_use = bytes,
          .eviction_policy = options.eviction_policy,
          .store_threshold = options.store_threshold,
          .max_tracker_size = options.max_tracker_size,
          .enable_events = config.report.enable_kv_events,
          .join_loads = options.join_loads,
          .found_when_stored = is_measured,
          .max_storing_blocks = is_measured ? std::max(1U, config.kv.num_blocks / 4) : 0,
          .own_policy = options.own_policy};
}

}  // namespace quire
