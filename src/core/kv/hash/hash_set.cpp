// A slot is free unless its round is the set's: clear() begins a new round.
#include "core/kv/hash/hash_set.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"

namespace quire {

std::size_t HashSet::slot_of(const BlockHash& hash) const {
  QUIRE_CHECK(!slots_.empty(), "a set with room");
  std::size_t at = hash.prefix() & (slots_.size() - 1);
  while (slots_[at].round == round_ && slots_[at].hash != hash) at = (at + 1) & (slots_.size() - 1);
  return at;
}

void HashSet::insert(const BlockHash& hash) {
  if (contains(hash)) return;
  if (2 * (size_ + 1) > slots_.size()) {
    const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(std::max<std::size_t>(64, 2 * slots_.size())));
    for (const Slot& slot : old)
      if (slot.round == round_) slots_[slot_of(slot.hash)] = slot;
  }
  QUIRE_CHECK(std::has_single_bit(slots_.size()) && size_ < slots_.size(), "a power of two, and a slot is free");
  slots_[slot_of(hash)] = {hash, round_};
  ++size_;
}

void HashSet::clear() {
  ++round_;
  size_ = 0;
}

}  // namespace quire
