// A key is in no list or in one of T1, T2, B1, B2.
//   insert        no list, B1, B2 -> T1
//   touch         T1, ready -> T2; else to the newest end of its list; in B1 and B2 this also changes the target
//   evict         T1 -> B1, T2 -> B2; the oldest of a full B1 or B2 -> no list
//   remove        T1, T2 -> no list
#include "core/offload/arc_policy.h"

#include <algorithm>

#include "base/check.h"

namespace quire {

ArcPolicy::ArcPolicy(std::uint32_t num_slots, const KeyIndex& keys)
    : num_slots_(num_slots), keys_(keys), links_(num_slots), t1_(links_), t2_(links_), in_t2_(num_slots), ghosts_(num_slots) {}

void ArcPolicy::insert(std::uint32_t slot) {
  QUIRE_CHECK(slot < in_t2_.size(), "an inserted slot is in the tier");
  in_t2_[slot] = 0;
  t1_.push_newest(slot);
  ghosts_.forget(keys_.key_of(slot));
}

void ArcPolicy::insert_oldest(std::uint32_t slot) {
  QUIRE_CHECK(slot < in_t2_.size(), "a restored slot is in the tier");
  in_t2_[slot] = 0;
  t1_.push_oldest(slot);
  ghosts_.forget(keys_.key_of(slot));
}

void ArcPolicy::replace(std::uint32_t old, std::uint32_t slot) {
  QUIRE_CHECK(old != slot && old < in_t2_.size() && slot < in_t2_.size(), "a slot is replaced by another slot of the tier");
  in_t2_[slot] = in_t2_[old];
  of(old).replace(old, slot);
}

void ArcPolicy::touch(std::uint32_t slot, bool ready) {
  QUIRE_CHECK(slot < in_t2_.size(), "a touched slot is in the tier");
  if (in_t2_[slot] != 0 || !ready) return of(slot).touch(slot);
  const bool evictable = t1_.is_evictable(slot);
  t1_.remove(slot);
  in_t2_[slot] = 1;
  t2_.push_newest(slot);
  t2_.set_evictable(slot, evictable);
}

void ArcPolicy::touch_missing(const OffloadKey& key) {
  const std::uint32_t entry = ghosts_.find(key);
  if (entry == kNoIndex) return;
  const auto b1 = static_cast<double>(ghosts_.size(GhostKeys::List::b1));
  const auto b2 = static_cast<double>(ghosts_.size(GhostKeys::List::b2));
  if (ghosts_.list_of(entry) == GhostKeys::List::b1)
    target_t1_size_ = std::min(target_t1_size_ + std::max(1.0, b2 / b1), static_cast<double>(num_slots_));
  else
    target_t1_size_ = std::max(target_t1_size_ - std::max(1.0, b1 / b2), 0.0);
  ghosts_.touch(entry);
}

// vLLM picks slots one by one: from T1 until the size of T1 minus the picks is below the target or T1 has no evictable slot, then only from
// T2. The number of slots picked from T1 can therefore be computed in advance.
bool ArcPolicy::evict(std::uint32_t count, std::span<const OffloadKey> /*incoming*/, std::vector<std::uint32_t>& slots) {
  QUIRE_CHECK(target_t1_size_ >= 0.0 && target_t1_size_ <= num_slots_, "the target size of T1 does not exceed the tier");
  const auto target = static_cast<std::uint32_t>(target_t1_size_);
  const std::uint32_t above_target = t1_.size() >= target ? t1_.size() - target + 1 : 0;
  const std::uint32_t from_t1 = std::min({count, t1_.num_evictable(), above_target});
  if (count - from_t1 > t2_.num_evictable()) return false;
  evict_oldest(t1_, GhostKeys::List::b1, from_t1, slots);
  evict_oldest(t2_, GhostKeys::List::b2, count - from_t1, slots);
  return true;
}

void ArcPolicy::append_next_victims(std::size_t most, std::vector<std::uint32_t>& slots) const {
  const std::size_t end = slots.size() + most;
  const auto target = static_cast<std::uint32_t>(target_t1_size_);
  const std::uint32_t above_target = t1_.size() >= target ? t1_.size() - target + 1 : 0;
  t1_.append_oldest(std::min<std::size_t>(most, above_target), slots);
  t2_.append_oldest(end - slots.size(), slots);
}

void ArcPolicy::evict_oldest(RecencyOrder& order, GhostKeys::List ghosts, std::uint32_t count, std::vector<std::uint32_t>& slots) {
  for (; count > 0; --count) {
    const std::uint32_t slot = order.oldest_evictable();
    QUIRE_CHECK(slot != kNoIndex, "there is an evictable slot");
    order.remove(slot);
    ghosts_.push(ghosts, keys_.key_of(slot));
    slots.push_back(slot);
  }
}

PolicySnapshot ArcPolicy::snapshot() const {
  PolicySnapshot snapshot{.lists = {}, .target_t1_size = target_t1_size_};
  for (const RecencyOrder* order : {&t1_, &t2_}) {
    auto& keys = snapshot.lists.emplace_back();
    order->all().for_each([&](std::uint32_t slot) { keys.push_back(keys_.key_of(slot)); });
  }
  snapshot.lists.push_back(ghosts_.keys(GhostKeys::List::b1));
  snapshot.lists.push_back(ghosts_.keys(GhostKeys::List::b2));
  return snapshot;
}

void ArcPolicy::check_invariants() const {
  t1_.check_invariants();
  t2_.check_invariants();
  t1_.all().for_each([&](std::uint32_t slot) { QUIRE_CHECK(in_t2_[slot] == 0); });
  t2_.all().for_each([&](std::uint32_t slot) { QUIRE_CHECK(in_t2_[slot] == 1); });
  ghosts_.check_invariants(keys_);
  QUIRE_CHECK(target_t1_size_ >= 0 && target_t1_size_ <= num_slots_);
}

}  // namespace quire
