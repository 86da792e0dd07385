#pragma once
// Maps offload keys to slots, with LRU eviction, for users of a disk store that have no ledger. take() returns only slots whose table
// entries were read, so a tier does not overwrite unknown blocks while its table is still being read. Used by one thread.
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "runtime/tier/disk_store.h"

namespace quire {

class SlotIndex {
 public:
  // Adds the blocks that the disk store found in the slots from the previous `num_known` to `num_known` - 1. `blocks` may be in any order.
  // Slots without a block become free. If two slots have the same key, the slot that was stored earlier becomes free. Restored blocks count
  // as less recently used than blocks that stored() has added.
  void add_restored(std::uint32_t num_known, std::span<const RestoredBlock> blocks);

  // Returns the slot of the key and counts as a use of the key.
  std::optional<std::uint32_t> find(const OffloadKey& name);
  // slot_of() and contains() do not count as a use.
  [[nodiscard]] std::optional<std::uint32_t> slot_of(const OffloadKey& name) const;
  [[nodiscard]] bool contains(const OffloadKey& name) const { return names_.contains(name); }
  // Returns a slot for a new key: a free slot, or else the slot of the least recently used key, which is removed. Returns nullopt if
  // there is neither a free slot nor a key. find() returns the new key's slot only after stored().
  std::optional<std::uint32_t> take();
  void stored(const OffloadKey& name, std::uint32_t place);
  // release() frees a slot that take() returned and that was not stored. forget() removes a key and frees its slot, for example because a
  // load was refused.
  void release(std::uint32_t place) { free_.push_back(place); }
  void forget(const OffloadKey& name);

  [[nodiscard]] std::size_t size() const { return names_.size(); }

 private:
  struct UsedSlot {
    std::uint32_t place;
    std::uint64_t used;
  };
  struct KeyHash {
    std::size_t operator()(const OffloadKey& name) const { return name.prefix() ^ name.group; }
  };

  std::unordered_map<OffloadKey, UsedSlot, KeyHash> names_;
  std::map<std::uint64_t, OffloadKey> by_last_use_;  // oldest first
  std::vector<std::uint32_t> free_;
  std::uint32_t num_known_ = 0;
  std::uint64_t clock_ = std::uint64_t{1} << 63U;  // above the sequence number of any restored block
};

}  // namespace quire
