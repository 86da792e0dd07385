#pragma once
// Words of the ledger of a lower KV tier (host memory): its keys, its slots, its options and its answers.
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "quire/api.h"
#include "quire/error.h"
#include "quire/ids.h"

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

// A place for one block in the tier: 0 <= value < num_slots.
using OffloadSlot = Id<struct OffloadSlotTag, std::uint32_t>;

enum class OffloadPolicy : std::uint8_t { lru, arc };

// "lru" or "arc", as vLLM's eviction_policy.
QUIRE_API Result<OffloadPolicy> parse_offload_policy(std::string_view name);

struct OffloadOptions {
  std::int64_t num_slots = 0;  // at most 2^28; 0: nothing can be stored
  OffloadPolicy policy = OffloadPolicy::lru;
  std::int64_t store_threshold = 0;        // lookups of a key before it is stored; below 2: no filter
  std::int64_t max_tracked_keys = 64'000;  // keys whose lookups are counted, least recently looked up forgotten; used with a filter only
  bool enable_events = false;
  std::int64_t max_pending_event_keys = 1 << 20;  // an event beyond it is lost and counted; take events every step
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
