#pragma once
// Types of the ledger of a lower KV tier (host memory): keys, slots, options and results. A ledger records which block is in which slot.
// Used by the offloading connector, the eviction policies, the tiers, the Python package, and programs that copy blocks themselves
// (tiered_offload.h). Counts are blocks unless a unit is given.
#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "quire/base/api.h"
#include "quire/base/error.h"
#include "quire/base/ids.h"

namespace quire {

// Identifies an offloaded block: its block hash (padded with zeros) and its cache group.
struct OffloadKey {
  std::array<std::uint8_t, 32> hash{};
  std::uint32_t group = 0;

  friend bool operator==(const OffloadKey&, const OffloadKey&) = default;

  // Returns the first 8 bytes of the hash, for hash tables.
  [[nodiscard]] std::uint64_t prefix() const {
    std::uint64_t value = 0;
    std::memcpy(&value, hash.data(), sizeof value);
    return value;
  }
};

// The state of a block in a tier and in the tier below it.
enum class OffloadState : std::uint8_t {
  absent,
  stored,   // can be loaded
  storing,  // its store is in flight
  coming,   // is being loaded from the tier below
  below,    // is only in the tier below, from which it can be copied
};

// A slot of the tier, which holds one block: 0 <= value < num_slots.
using OffloadSlot = Id<struct OffloadSlotTag, std::uint32_t>;

// Eviction policies. lru and arc decide as vLLM's policies. arc_paper is ARC as published (Megiddo and Modha, 2003), and s3fifo is S3-FIFO
// (Yang et al., 2023).
enum class OffloadPolicy : std::uint8_t { lru, arc, arc_paper, s3fifo };

// Parses an eviction_policy: vLLM's "lru" or "arc", or "arc_paper" or "s3fifo". Error: `eviction_policy`: the name is unknown.
QUIRE_API Result<OffloadPolicy> parse_offload_policy(std::string_view name);

// Creates a custom policy (eviction_policy.h) for slots 0 to num_slots - 1. Must not return null.
class EvictionPolicy;
class SlotKeys;
using EvictionPolicyFactory = std::function<std::unique_ptr<EvictionPolicy>(std::uint32_t num_slots, const SlotKeys& keys)>;

// Options of an OffloadManager or of a tier's ledger.
struct OffloadOptions {
  std::int64_t num_slots = 0;  // at most 2^28; 0: nothing can be stored
  OffloadPolicy policy = OffloadPolicy::lru;
  std::int64_t store_threshold = 0;        // lookups of a key before it is stored; below 2: no filter
  std::int64_t max_tracked_keys = 64'000;  // keys with counted lookups, LRU; used only with a filter
  bool enable_events = false;
  std::int64_t max_pending_event_keys = 1 << 20;  // further events are lost and counted; take events every step
  bool restores = false;                          // slots may hold blocks already: `OffloadLedger::restore()` reports each
  EvictionPolicyFactory custom_policy = {};       // instead of `policy`
};

// Options of the offloading connector, with names and defaults from vLLM's kv_connector_extra_config.
struct OffloadConnectorOptions {
  std::uint64_t cpu_bytes_to_use = 0;      // size of the tier over all ranks; must be at least 1
  std::uint32_t block_size = 0;            // tokens of an offloaded block, a multiple of the cache's block size; 0: the cache's block size
  std::string eviction_policy = "lru";     // see parse_offload_policy()
  std::int64_t store_threshold = 0;        // see `OffloadOptions`
  std::int64_t max_tracker_size = 64'000;  // `OffloadOptions::max_tracked_keys`
  bool enable_events = false;              // `kv_events_config.enable_kv_cache_events`
  // Makes a request also load blocks that are being loaded for another request. In vLLM the request waits instead; afterwards it finds the
  // block in the prefix cache, or loads it. With this option it does not depend on the other request.
  bool join_loads = false;
  // Lets a block be loaded only after its store is over. In vLLM a block can be loaded as soon as its request ends or is preempted,
  // although its store may still be in flight.
  bool hit_after_store_completes = false;
  // Limit of cache blocks that are being stored or wait for their store, because a slow tier would keep blocks of ended requests from other
  // requests. Further blocks are stored when there is room again, if their request still runs. 0: no limit.
  std::uint32_t max_storing_blocks = 0;
  // Reduces stores while nearly all blocks are evicted without a hit: a request is then stored only if it had a hit, if enough slots are
  // free, or as one in sixteen of all other requests.
  bool skips_stores_on_churn = false;
  // Stores the leading blocks that fit if not all blocks of a request fit, and never evicts a request's leading blocks for its later
  // blocks. vLLM stores all blocks that a request fills in a step, or none, so it stores nothing of a request that is larger than the tier.
  bool stores_leading_blocks = false;
  EvictionPolicyFactory custom_policy = {};  // instead of eviction_policy
};

// Whether a tier may load and store now. The engine sets it when it monitors tiers that fail or hang; the connector reads it when a request
// is matched.
struct TierService {
  bool loads = true, stores = true;

  friend bool operator==(const TierService&, const TierService&) = default;
};

// Measured speeds for a tier's policy (KvTierPolicy::measured). 0: not known yet. While one of the speeds is 0, every hit is loaded.
struct TierCosts {
  double load_bytes_per_s = 0.0;
  double compute_tokens_per_s = 0.0;

  friend bool operator==(const TierCosts&, const TierCosts&) = default;
};

// Totals since the start, in offloaded blocks.
struct OffloadCounters {
  std::uint64_t num_stored = 0, num_loaded = 0;  // planned, whether or not the transfer is over
  std::uint64_t num_failed_stores = 0, num_failed_loads = 0;
  std::uint64_t num_loaded_tokens = 0;      // prompt tokens from completed loads
  std::uint64_t num_without_slot = 0;       // blocks for which there was no slot; a block counts again at each further attempt
  std::uint64_t num_deferred_by_limit = 0;  // stores delayed because of `max_storing_blocks`
  std::uint64_t num_stored_when_idle = 0;   // store delayed; stored after their request had ended and while no request ran or waited
  std::uint64_t num_skipped_for_churn = 0;  // blocks of requests that are not stored (`OffloadConnectorOptions::skips_stores_on_churn`)
  std::uint64_t num_computed_tokens = 0;    // tokens not loaded because computing is faster (`TierCosts`)
};

// The result of prepare_store(). The block of `keys[i]` goes to `slots[i]`. `evicted`: the keys that were evicted for this store, in the
// order of eviction. `left`: the keys after `keys` for which there was no slot. Views of the ledger, valid until its next call.
struct PreparedStore {
  std::span<const OffloadKey> keys;
  std::span<const OffloadSlot> slots;
  std::span<const OffloadKey> evicted;
  std::span<const OffloadKey> left = {};
};

// An event: the blocks of `keys` can be loaded now, or with `removed` have left the tier. A view of the ledger, valid until its next call.
struct OffloadEvent {
  std::span<const OffloadKey> keys;
  bool removed = false;
};

}  // namespace quire
