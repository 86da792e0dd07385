#pragma once
// Which blocks are evicted from a tier when others need room. A policy keeps the order of the resident slots; the ledger of the tier says
// which of them may go. Decisions of quire's own lru and arc are those of vLLM's CachePolicy classes (v0.19.0). Others come from a host
// (OffloadOptions::own_policy) or from a library (connector_registry.h). One thread; nothing may throw.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "quire/offload.h"

namespace quire {

// The order of a policy, for comparisons, tests and explanations: keys from the oldest on.
struct PolicySnapshot {
  std::vector<std::vector<OffloadKey>> lists = {};  // lru: all; arc and arc_paper: t1, t2, b1, b2; s3fifo: small, main, ghosts
  double target_t1_size = 0;                        // arc and arc_paper
};

// What lies in a resident slot; to be asked for those only. It outlives the policy.
class SlotKeys {
 public:
  [[nodiscard]] virtual const OffloadKey& key_of(std::uint32_t slot) const = 0;

 protected:
  ~SlotKeys() = default;
};

// States of a slot, as the policy sees it:
//   absent     nothing of it is known                        remove(), evict(), replace(old)
//   resident   in the order, not evictable: in transfer      insert(), insert_oldest(), replace(slot)
//   evictable  may be given by evict()                       set_evictable(slot, true)
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;

  // The slot becomes resident, the most recently used, and not evictable. It has its key already.
  virtual void insert(std::uint32_t slot) = 0;
  // As insert(), but the least recently used.
  virtual void insert_oldest(std::uint32_t slot) = 0;
  // `slot` becomes resident in the place of `old`, which is evicted; neither is evictable.
  virtual void replace(std::uint32_t old, std::uint32_t slot) = 0;
  // The slot is removed without a trace: what was to be stored there never came. It has its key still.
  virtual void remove(std::uint32_t slot) = 0;
  // A resident key was looked up, perhaps in each step in which a request waits, or lies before one that is stored. `ready`: its block has
  // been stored.
  virtual void touch(std::uint32_t slot, bool ready) = 0;
  // A key that is not resident was looked up.
  virtual void touch_absent(const OffloadKey& /*key*/) {}
  // A request that wants this resident key was admitted. Policies that tell what is used once from what is used again count this: a touch
  // is no sign of another user.
  virtual void use(std::uint32_t /*slot*/) {}
  // Idempotent.
  virtual void set_evictable(std::uint32_t slot, bool evictable) = 0;
  // Before `incoming` are inserted, in this order: takes the `count` evictable slots out that there must be for the last of them, appended
  // to `slots` in order; false, and nothing changed, if the policy has not that many to give. They have their keys still. Asked for 0 of
  // them, too, when there is room.
  virtual bool evict(std::uint32_t count, std::span<const OffloadKey> incoming, std::vector<std::uint32_t>& slots) = 0;

  // Appends evictable slots that look as if they would be evicted next, the first one first, `most` at most: what a lower tier takes while
  // it is still here. Fewer, or none, where the policy cannot say. Nothing changes.
  virtual void append_next(std::size_t /*most*/, std::vector<std::uint32_t>& /*slots*/) const {}

  [[nodiscard]] virtual bool is_evictable(std::uint32_t slot) const = 0;
  [[nodiscard]] virtual std::uint32_t num_resident() const = 0;
  [[nodiscard]] virtual PolicySnapshot snapshot() const { return {}; }
  virtual void check_invariants() const {}
};

}  // namespace quire
