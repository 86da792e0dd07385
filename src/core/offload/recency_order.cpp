#include "core/offload/recency_order.h"

#include "base/check.h"

namespace quire {

void RecencyOrder::remove(std::uint32_t slot) {
  set_evictable(slot, false);
  all_.remove(slot);
}

void RecencyOrder::touch(std::uint32_t slot) {
  all_.remove(slot);
  all_.push_back(slot);
  if (is_evictable(slot)) {
    evictable_.remove(slot);
    evictable_.push_back(slot);
  }
}

void RecencyOrder::replace(std::uint32_t old, std::uint32_t slot) {
  QUIRE_CHECK(all_.linked(old) && !all_.linked(slot), "a resident slot is replaced by a new slot");
  QUIRE_CHECK(!is_evictable(old), "a replaced slot is not evictable");
  all_.insert_after(slot, old);
  remove(old);
}

void RecencyOrder::set_evictable(std::uint32_t slot, bool evictable) {
  QUIRE_CHECK(all_.linked(slot), "the slot is resident");
  if (is_evictable(slot) == evictable) return;
  if (evictable)
    link_evictable(slot);
  else
    evictable_.remove(slot);
}

void RecencyOrder::link_evictable(std::uint32_t slot) {
  QUIRE_CHECK(evictable_.size() < all_.size(), "there are fewer evictable slots than resident slots");
  // Searches in both directions, one step each, until it finds an evictable slot or an end. The length of the search therefore does not
  // depend on the slot's position in the order.
  std::uint32_t older = all_.prev(slot);
  std::uint32_t newer = all_.next(slot);
  for (; older != kNoIndex && newer != kNoIndex; older = all_.prev(older), newer = all_.next(newer)) {
    if (is_evictable(older)) return evictable_.insert_after(slot, older);
    if (is_evictable(newer)) return evictable_.insert_before(slot, newer);
  }
  older == kNoIndex ? evictable_.push_front(slot) : evictable_.push_back(slot);
}

void RecencyOrder::append_oldest(std::size_t most, std::vector<std::uint32_t>& slots) const {
  for (std::uint32_t slot = evictable_.front(); slot != kNoIndex && most > 0; slot = evictable_.next(slot), --most) slots.push_back(slot);
}

void RecencyOrder::check_invariants() const {
  all_.check_invariants();
  evictable_.check_invariants();
  std::uint32_t expected = evictable_.front();
  std::uint32_t count = 0;
  all_.for_each([&](std::uint32_t slot) {
    ++count;
    if (is_evictable(slot)) {
      QUIRE_CHECK(slot == expected, "evictable slots are in the order of all slots");
      expected = evictable_.next(slot);
    }
  });
  QUIRE_CHECK(count == all_.size() && expected == kNoIndex);
}

}  // namespace quire
