#include "runtime/tier/slot_index.h"

#include <algorithm>

#include "base/check.h"

namespace quire {

// Several blocks can have the same key: the key was stored again in another slot while its older entry was still in the table. The block
// that was stored last is used.
void SlotIndex::add_restored(std::uint32_t num_known, std::span<const RestoredBlock> blocks) {
  std::vector<bool> is_held(num_known - num_known_);
  for (const RestoredBlock& block : blocks) {
    QUIRE_CHECK(block.place >= num_known_ && block.place < num_known, "a restored block is in the part of the table that was just read");
    const auto known = names_.find(block.name);
    if (known != names_.end() && known->second.used > block.sequence) continue;
    if (known != names_.end()) {
      const std::uint32_t older = known->second.place;
      forget(block.name);
      if (older >= num_known_) {  // the loop below frees the older slot
        is_held[older - num_known_] = false;
        free_.pop_back();
      }
    }
    // Two blocks have the same sequence number if a header was lost and its numbers were used again. The second block is ignored.
    if (!by_last_use_.emplace(block.sequence, block.name).second) continue;
    names_.emplace(block.name, UsedSlot{block.place, block.sequence});
    is_held[block.place - num_known_] = true;
  }
  for (std::uint32_t i = num_known; i-- > num_known_;)
    if (!is_held[i - num_known_]) free_.push_back(i);
  num_known_ = num_known;
}

std::optional<std::uint32_t> SlotIndex::find(const OffloadKey& name) {
  const auto found = names_.find(name);
  if (found == names_.end()) return std::nullopt;
  by_last_use_.erase(found->second.used);
  found->second.used = ++clock_;
  by_last_use_.emplace(clock_, name);
  return found->second.place;
}

std::optional<std::uint32_t> SlotIndex::slot_of(const OffloadKey& name) const {
  const auto found = names_.find(name);
  return found == names_.end() ? std::nullopt : std::optional(found->second.place);
}

std::optional<std::uint32_t> SlotIndex::take() {
  if (free_.empty() && !by_last_use_.empty()) forget(OffloadKey(by_last_use_.begin()->second));
  if (free_.empty()) return std::nullopt;
  const std::uint32_t place = free_.back();
  free_.pop_back();
  return place;
}

void SlotIndex::stored(const OffloadKey& name, std::uint32_t place) {
  forget(name);
  names_.emplace(name, UsedSlot{place, ++clock_});
  by_last_use_.emplace(clock_, name);
}

void SlotIndex::forget(const OffloadKey& name) {
  const auto found = names_.find(name);
  if (found == names_.end()) return;
  free_.push_back(found->second.place);
  by_last_use_.erase(found->second.used);
  names_.erase(found);
}

}  // namespace quire
