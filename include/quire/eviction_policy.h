#pragma once
// Decides which blocks are evicted from a tier. A policy orders the resident slots; the tier's ledger says which slots are evictable.
// quire's own lru and arc decide as vLLM's CachePolicy classes (v0.19.0). Other policies come from a host (OffloadOptions::custom_policy)
// or a library (connector_registry.h). One thread; no function may throw.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "quire/offload.h"

namespace quire {

// The order of a policy, for comparisons, tests and explanations. Each list starts with the oldest key.
struct PolicySnapshot {
  std::vector<std::vector<OffloadKey>> lists = {};  // lru: all; arc and arc_paper: t1, t2, b1, b2; s3fifo: small, main, ghosts
  double target_t1_size = 0;                        // arc and arc_paper
};

// Maps slots to keys. It outlives the policy.
class SlotKeys {
 public:
  // Returns the key in a resident slot. Must not be called for other slots.
  [[nodiscard]] virtual const OffloadKey& key_of(std::uint32_t slot) const = 0;

 protected:
  ~SlotKeys() = default;
};

// A policy of a tier. States of a slot, and the calls that lead to them:
//   absent     not known to the policy                       remove(), evict(), replace(old)
//   resident   in the order, not evictable: in transfer      insert(), insert_oldest(), replace(slot)
//   evictable  may be returned by evict()                    set_evictable(slot, true)
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;

  // Makes the slot resident, most recently used and not evictable. Its key is set already.
  virtual void insert(std::uint32_t slot) = 0;
  // Like insert(), but least recently used.
  virtual void insert_oldest(std::uint32_t slot) = 0;
  // Puts `slot` at the position of `old`, which is evicted. Neither is evictable.
  virtual void replace(std::uint32_t old, std::uint32_t slot) = 0;
  // Removes the slot without a record: its store never completed. Its key is still set.
  virtual void remove(std::uint32_t slot) = 0;
  // A resident key was looked up (perhaps in each step of a waiting request), or precedes a key that is stored. `ready`: its block has been
  // stored.
  virtual void touch(std::uint32_t slot, bool ready) = 0;
  // A key that is not resident was looked up.
  virtual void touch_missing(const OffloadKey& /*key*/) {}
  // A request that needs this resident key was admitted. Policies that separate single use from reuse count this: a touch may come from the
  // same request again.
  virtual void use(std::uint32_t /*slot*/) {}
  // Makes a resident slot evictable or not. Idempotent.
  virtual void set_evictable(std::uint32_t slot, bool evictable) = 0;
  // Called before `incoming` are inserted, in this order. Removes `count` evictable slots, so that all of `incoming` find room, and appends
  // them to `slots` in order. Their keys are still set. Returns false, and changes nothing, if it cannot give as many. `count` is 0 if
  // there is room already.
  virtual bool evict(std::uint32_t count, std::span<const OffloadKey> incoming, std::vector<std::uint32_t>& slots) = 0;

  // Appends at most `most` evictable slots that are likely to be evicted next, the first one first. A lower tier stores them before they
  // are evicted. Appends fewer, or none, if the policy cannot predict. Changes nothing.
  virtual void append_next_victims(std::size_t /*most*/, std::vector<std::uint32_t>& /*slots*/) const {}

  [[nodiscard]] virtual bool is_evictable(std::uint32_t slot) const = 0;
  [[nodiscard]] virtual std::uint32_t num_resident() const = 0;
  [[nodiscard]] virtual PolicySnapshot snapshot() const { return {}; }
  virtual void check_invariants() const {}
};

}  // namespace quire
