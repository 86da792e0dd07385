#pragma once
// Maps offload keys to slots, with LRU eviction, for users of a store that have no ledger. A slot is assigned only once its contents are
// known, so a tier does not overwrite blocks while its table is still being read. Used by one thread.
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
  // Takes the blocks that a store has found in slots [known, num_known), in any order. Slots without a block become free, and so does the
  // older of two slots with one key. Restored blocks count as older than blocks that were added since.
  void add_restored(std::uint32_t num_known, std::span<const RestoredBlock> blocks);

  // Returns the slot of the key, and counts as a use.
  std::optional<std::uint32_t> find(const OffloadKey& name);
  // These do not count as a use.
  [[nodiscard]] std::optional<std::uint32_t> slot_of(const OffloadKey& name) const;
  [[nodiscard]] bool contains(const OffloadKey& name) const { return names_.contains(name); }
  // Returns a slot for a key that has no slot: a free one, or the slot of the least recently used key, which is forgotten. Returns nullopt
  // if no slot is known yet or all are being written. The key is found after stored().
  std::optional<std::uint32_t> take();
  void stored(const OffloadKey& name, std::uint32_t place);
  // release() frees a slot from take() that was not stored. forget() removes a key, for example if its block was refused.
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
