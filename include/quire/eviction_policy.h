#pragma once
// Decides which blocks are evicted from a tier. A policy orders the resident slots; the tier's ledger decides which slots are evictable.
// quire's own lru and arc decide as vLLM's CachePolicy classes (v0.19.0). A host (OffloadOptions::custom_policy) or a library
// (connector_registry.h) may supply other policies. One thread calls a policy; no function may throw.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "quire/offload.h"

namespace quire {

// The internal order of a policy, for comparisons, tests and explanations. Each list starts with the oldest key.
struct PolicySnapshot {
  std::vector<std::vector<OffloadKey>> lists = {};  // lru: all keys; arc and arc_paper: t1, t2, b1, b2; s3fifo: small, main, ghosts
  double target_t1_size = 0;                        // arc and arc_paper
};

// Maps slots to keys. Outlives the policy that uses it.
class SlotKeys {
 public:
  // Returns the key in a resident slot. Must not be called for other slots.
  [[nodiscard]] virtual const OffloadKey& key_of(std::uint32_t slot) const = 0;

 protected:
  ~SlotKeys() = default;
};

// Orders the slots of a tier for eviction. States of a slot, and the calls that lead to them:
//   absent     not known to the policy                       remove(), evict(), replace(old)
//   resident   in the order, not evictable: in transfer      insert(), insert_oldest(), replace(slot)
//   evictable  may be returned by evict()                    set_evictable(slot, true)
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;

  // Makes the slot resident, as the most recently used slot and not evictable. The slot's key is already set.
  virtual void insert(std::uint32_t slot) = 0;
  // Like insert(), but makes the slot the least recently used one.
  virtual void insert_oldest(std::uint32_t slot) = 0;
  // Puts `slot` at the position of `old`, and removes `old`. Neither slot is evictable.
  virtual void replace(std::uint32_t old, std::uint32_t slot) = 0;
  // Removes the slot because its store has failed, or because its content must not be loaded any more. The policy must not record the key
  // as evicted. The slot's key is still set.
  virtual void remove(std::uint32_t slot) = 0;
  // Called when a resident key was looked up (perhaps in each step of a waiting request), or precedes a key that is stored. `ready`: the
  // key's block has been stored.
  virtual void touch(std::uint32_t slot, bool ready) = 0;
  // Called when a key that is not resident was looked up.
  virtual void touch_missing(const OffloadKey& /*key*/) {}
  // Called when a request that needs this resident key was admitted. Policies that distinguish single use from reuse count these calls,
  // because touch() may be called several times for one request.
  virtual void use(std::uint32_t /*slot*/) {}
  // Makes a resident slot evictable or not. Idempotent.
  virtual void set_evictable(std::uint32_t slot, bool evictable) = 0;
  // Called before `incoming` are inserted, in this order. Removes `count` evictable slots, so that all of `incoming` have a slot, and
  // appends the removed slots to `slots` in order of eviction. Their keys are still set. If fewer than `count` slots are evictable, returns
  // false and changes nothing. `count` is 0 if enough slots are free already.
  virtual bool evict(std::uint32_t count, std::span<const OffloadKey> incoming, std::vector<std::uint32_t>& slots) = 0;

  // Appends at most `most` evictable slots that are likely to be evicted next, the next one first. A lower tier stores their blocks before
  // they are evicted. A policy that cannot predict appends fewer slots, or none. Changes nothing.
  virtual void append_next_victims(std::size_t /*most*/, std::vector<std::uint32_t>& /*slots*/) const {}

  [[nodiscard]] virtual bool is_evictable(std::uint32_t slot) const = 0;
  [[nodiscard]] virtual std::uint32_t num_resident() const = 0;
  [[nodiscard]] virtual PolicySnapshot snapshot() const { return {}; }
  virtual void check_invariants() const {}
};

}  // namespace quire
