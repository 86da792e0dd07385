#pragma once
// Which blocks are evicted from the tier when others need room. A policy keeps the order of the resident slots; the ledger says which of
// them may go. Decisions are those of vLLM's CachePolicy classes (v0.19.0).
#include <cstdint>
#include <vector>

#include "core/offload/key_index.h"

namespace quire {

// The order of a policy, for comparisons, tests and explanations: keys from the oldest on.
struct PolicySnapshot {
  std::vector<std::vector<OffloadKey>> lists;  // lru: all; arc: t1, t2, b1, b2
  double target_t1_size = 0;                   // arc
};

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
  // A resident key was used. `ready`: its block has been stored.
  virtual void touch(std::uint32_t slot, bool ready) = 0;
  // A key that is not resident was used.
  virtual void touch_absent(const OffloadKey& /*key*/) {}
  // Idempotent.
  virtual void set_evictable(std::uint32_t slot, bool evictable) = 0;
  // Takes `count` evictable slots out, appended to `slots` in order; false, and nothing changed, if the policy has not that many to give.
  // They have their keys still.
  virtual bool evict(std::uint32_t count, std::vector<std::uint32_t>& slots) = 0;

  [[nodiscard]] virtual bool is_evictable(std::uint32_t slot) const = 0;
  [[nodiscard]] virtual std::uint32_t num_resident() const = 0;
  [[nodiscard]] virtual PolicySnapshot snapshot() const = 0;
  virtual void check_invariants() const = 0;
};

}  // namespace quire
