// A slot is taken if its round equals the set's round. clear() begins a new round, which frees all slots.
#include "core/kv/hash/hash_set.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"

namespace quire {

std::size_t HashSet::slot_of(const BlockHash& hash) const {
  QUIRE_CHECK(!slots_.empty(), "the set has slots");
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
  QUIRE_CHECK(std::has_single_bit(slots_.size()) && size_ < slots_.size(), "the number of slots is a power of two, and a slot is free");
  slots_[slot_of(hash)] = {hash, round_};
  ++size_;
}

void HashSet::check_invariants() const {
  QUIRE_CHECK(slots_.empty() || std::has_single_bit(slots_.size()), "the number of slots is a power of two");
  QUIRE_CHECK(2 * size_ <= slots_.size(), "at least half of the slots are free");
  std::size_t num_taken = 0;
  for (std::size_t at = 0; at < slots_.size(); ++at) {
    QUIRE_CHECK(slots_[at].round <= round_, "no slot has a later round");
    if (slots_[at].round != round_) continue;
    ++num_taken;
    QUIRE_CHECK(slot_of(slots_[at].hash) == at, "a hash is on its probe sequence, once");
  }
  QUIRE_CHECK(num_taken == size_, "the size equals the number of taken slots");
}

void HashSet::clear() {
  ++round_;
  size_ = 0;
}

}  // namespace quire
