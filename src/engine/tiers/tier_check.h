#pragma once
// Checks, connector options and events that all tiers of an engine share.
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

inline constexpr double kLoadHorizon_s = 2.0;  // loading time over which the speed is averaged

// Returns an error that names `field` if a cache with this config cannot have a tier.
Result<void> check_tier(const CoreConfig& config, const char* field);

// Returns the bytes of a block, by cache group.
std::vector<std::uint64_t> group_block_bytes(const KvLayout& layout);

// Implements KvTier::take_events() for a tier with blocks in this medium ("CPU", "DISK").
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
