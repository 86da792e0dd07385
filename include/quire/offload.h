#pragma once
// Words of the ledger of a lower KV tier (host memory): its keys, its slots, its options and its answers.
// Shared by the offloading connector, the eviction policies, the tiers and the Python package. Counts are of blocks unless a unit is named.
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

// The name of an offloaded block: its block hash (shorter ones end in zeros) and its cache group.
struct OffloadKey {
  std::array<std::uint8_t, 32> hash{};
  std::uint32_t group = 0;

  friend bool operator==(const OffloadKey&, const OffloadKey&) = default;

  [[nodiscard]] std::uint64_t prefix() const {
    std::uint64_t value = 0;
    std::memcpy(&value, hash.data(), sizeof value);
    return value;
  }
};

// Where a block is, as far as a tier and what lies below it know.
enum class OffloadPlace : std::uint8_t {
  absent,
  stored,   // it can be loaded
  storing,  // a store of it is under way
  coming,   // it is on its way up from below
  below,    // it can be brought up
};

// A place for one block in the tier: 0 <= value < num_slots.
using OffloadSlot = Id<struct OffloadSlotTag, std::uint32_t>;

// lru and arc decide as vLLM's; arc_paper is ARC as it was published (Megiddo and Modha, 2003), s3fifo is S3-FIFO (Yang et al., 2023).
enum class OffloadPolicy : std::uint8_t { lru, arc, arc_paper, s3fifo };

// vLLM's eviction_policy: "lru", "arc"; and "arc_paper", "s3fifo".
QUIRE_API Result<OffloadPolicy> parse_offload_policy(std::string_view name);

// Another policy (eviction_policy.h), made for slots 0 to num_slots - 1; never null.
class EvictionPolicy;
class SlotKeys;
using EvictionPolicyFactory = std::function<std::unique_ptr<EvictionPolicy>(std::uint32_t num_slots, const SlotKeys& keys)>;

struct OffloadOptions {
  std::int64_t num_slots = 0;  // at most 2^28; 0: nothing can be stored
  OffloadPolicy policy = OffloadPolicy::lru;
  std::int64_t store_threshold = 0;        // lookups of a key before it is stored; below 2: no filter
  std::int64_t max_tracked_keys = 64'000;  // keys whose lookups are counted, least recently looked up forgotten; used with a filter only
  bool enable_events = false;
  std::int64_t max_pending_event_keys = 1 << 20;  // an event beyond it is lost and counted; take events every step
  bool restores = false;                          // blocks may be there from before: OffloadLedger::restore() tells of each slot
  EvictionPolicyFactory own_policy = {};          // instead of `policy`
};

// What the offloading connector can be told: names and defaults are those of vLLM's kv_connector_extra_config.
struct OffloadConnectorOptions {
  std::uint64_t cpu_bytes_to_use = 0;      // of the tier, over all ranks; at least 1
  std::uint32_t block_size = 0;            // tokens of an offloaded block, a multiple of the cache's; 0: the cache's
  std::string eviction_policy = "lru";     // as parse_offload_policy
  std::int64_t store_threshold = 0;        // as in OffloadOptions
  std::int64_t max_tracker_size = 64'000;  // OffloadOptions::max_tracked_keys
  bool enable_events = false;              // kv_events_config.enable_kv_cache_events
  // vLLM lets a request wait while a block that it wants is being loaded for another one, and finds that block in the prefix cache, or
  // loads it then. With this option the request loads it too, at once: it neither waits for others nor for their fate.
  bool join_loads = false;
  // In vLLM a block can be loaded from the end of its request on, or from when that is preempted, although the store may be under way. With
  // this option it can when its store is over.
  bool found_when_stored = false;
  // Blocks of the cache that may be under way to the tier at a time, or be about to go: a slow tier would keep the blocks of those that
  // have ended from others. What is more is stored when there is room again, if its request still runs. 0: any number.
  std::uint32_t max_storing_blocks = 0;
  EvictionPolicyFactory own_policy = {};  // instead of eviction_policy
};

// // Said by the engine's watch over a tier that fails or hangs; read when the next request is matched.
// What a tier can do now.
struct TierService {
  bool loads = true, stores = true;

  friend bool operator==(const TierService&, const TierService&) = default;
};

// // What a tier's policy weighs (KvTierPolicy::measured): while one of them is 0, all that is found is loaded.
// Measured; 0: not known yet.
struct TierCosts {
  double load_bytes_per_s = 0.0;
  double compute_tokens_per_s = 0.0;

  friend bool operator==(const TierCosts&, const TierCosts&) = default;
};

// Totals from the start, in offloaded blocks.
struct OffloadCounters {
  std::uint64_t num_stored = 0, num_loaded = 0;  // planned
  std::uint64_t num_failed_stores = 0, num_failed_loads = 0;
  std::uint64_t num_loaded_tokens = 0;    // of prompts: what loads that are over have saved
  std::uint64_t num_without_room = 0;     // not stored now because the tier is full of blocks in transfer
  std::uint64_t num_held_back = 0;        // not stored now because of max_storing_blocks
  std::uint64_t num_stored_at_end = 0;    // held back, and stored when their request had ended and nobody else ran or waited
  std::uint64_t num_computed_tokens = 0;  // could have been loaded, but not as fast (TierCosts)
};

// What prepare_store decided. `keys` go to `slots`, one each; `evicted` left the tier for them, in the order of their eviction. Views of
// the ledger, valid until its next call.
struct PreparedStore {
  std::span<const OffloadKey> keys;
  std::span<const OffloadSlot> slots;
  std::span<const OffloadKey> evicted;
};

// Blocks became loadable, or left the tier. A view of the ledger, valid until its next call.
struct OffloadEvent {
  std::span<const OffloadKey> keys;
  bool removed = false;
};

}  // namespace quire
