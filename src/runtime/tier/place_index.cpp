#include "runtime/tier/place_index.h"

#include <algorithm>

#include "base/check.h"

namespace quire {

// Several blocks may have one name: a name that was stored anew in another place, while the older entry was still in the table. The newest
// counts.
void PlaceIndex::add_restored(std::uint32_t num_known, std::span<const RestoredBlock> blocks) {
  std::vector<bool> is_held(num_known - num_known_);
  for (const RestoredBlock& block : blocks) {
    QUIRE_CHECK(block.place >= num_known_ && block.place < num_known, "found beyond what was read");
    const auto known = names_.find(block.name);
    if (known != names_.end() && known->second.used > block.sequence) continue;
    if (known != names_.end()) {
      const std::uint32_t older = known->second.place;
      forget(block.name);
      if (older >= num_known_) {  // is counted as free below
        is_held[older - num_known_] = false;
        free_.pop_back();
      }
    }
    // Two blocks of one sequence number: a header was lost, and its numbers were given anew.
    if (!by_use_.emplace(block.sequence, block.name).second) continue;
    names_.emplace(block.name, Held{block.place, block.sequence});
    is_held[block.place - num_known_] = true;
  }
  for (std::uint32_t i = num_known; i-- > num_known_;)
    if (!is_held[i - num_known_]) free_.push_back(i);
  num_known_ = num_known;
}

std::optional<std::uint32_t> PlaceIndex::find(const OffloadKey& name) {
  const auto found = names_.find(name);
  if (found == names_.end()) return std::nullopt;
  by_use_.erase(found->second.used);
  found->second.used = ++clock_;
  by_use_.emplace(clock_, name);
  return found->second.place;
}

std::optional<std::uint32_t> PlaceIndex::place_of(const OffloadKey& name) const {
  const auto found = names_.find(name);
  return found == names_.end() ? std::nullopt : std::optional(found->second.place);
}

std::optional<std::uint32_t> PlaceIndex::take() {
  if (free_.empty() && !by_use_.empty()) forget(OffloadKey(by_use_.begin()->second));
  if (free_.empty()) return std::nullopt;
  const std::uint32_t place = free_.back();
  free_.pop_back();
  return place;
}

void PlaceIndex::stored(const OffloadKey& name, std::uint32_t place) {
  forget(name);
  names_.emplace(name, Held{place, ++clock_});
  by_use_.emplace(clock_, name);
}

void PlaceIndex::forget(const OffloadKey& name) {
  const auto found = names_.find(name);
  if (found == names_.end()) return;
  free_.push_back(found->second.place);
  by_use_.erase(found->second.used);
  names_.erase(found);
}

}  // namespace quire
