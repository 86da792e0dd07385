#pragma once
// Checks, connector options and events that are common to all tiers of an engine.
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

inline constexpr double kLoadHorizon_s = 2.0;  // averaging time of the load speed, in seconds of loading

// Returns an error that names `field` if a cache with this configuration cannot have a tier.
Result<void> check_tier(const CoreConfig& config, const char* field);

// Returns the size of a block in bytes, by cache group.
std::vector<std::uint64_t> group_block_bytes(const KvLayout& layout);

// Implements KvTier::take_events() for a tier whose blocks are in this medium ("CPU", "DISK").
void take_tier_events(OffloadConnector& connector, const TierBlockFormat& format, const char* medium, std::vector<KvEvent>& out);

// Returns the connector options of a tier with this capacity.
template <class TierOptions>
OffloadConnectorOptions tier_connector_options(std::uint64_t bytes, const TierOptions& options, const CoreConfig& config) {
  const bool is_measured = options.policy == KvTierPolicy::measured;
  return {.cpu_bytes_to_use = bytes,
          .eviction_policy = options.eviction_policy,
          .store_threshold = options.store_threshold,
          .max_tracker_size = options.max_tracker_size,
          .enable_events = config.report.enable_kv_events,
          .join_loads = options.join_loads,
          .hit_after_store_completes = is_measured,
          .max_storing_blocks = is_measured ? std::max(1U, config.kv.num_blocks / 4) : 0,
          .stores_leading_blocks = is_measured,
          .custom_policy = options.custom_policy};
}

}  // namespace quire
