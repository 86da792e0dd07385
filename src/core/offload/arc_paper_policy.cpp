// A key is in no list or in one of T1, T2, B1, B2. L1 is T1 and B1 together, L2 is T2 and B2 together. With c slots, L1 has at most c keys,
// and both lists together have at most 2c.
//   insert        no list -> T1; B1, B2 -> T2, after the target has changed
//   use           T1, T2 -> the newest of T2
//   evict         T1 -> B1, or no list if T1 is all of L1 and L1 is full; T2 -> B2
//   remove        T1, T2 -> no list
// A ghost is forgotten if a new key would make L1, or both lists together, too large.
#include "core/offload/arc_paper_policy.h"

#include <algorithm>

#include "base/check.h"

namespace quire {

bool ArcPaperPolicy::evict(std::uint32_t count, std::span<const OffloadKey> incoming, std::vector<std::uint32_t>& slots) {
  QUIRE_CHECK(count <= incoming.size(), "no more slots are evicted than keys are added");
  if (count > queues_.num_evictable()) return false;
  for (std::size_t i = 0; i < incoming.size(); ++i) admit(incoming[i], i + count >= incoming.size(), slots);
  return true;
}

// Implements cases II to IV of figure 4; case I is use().
void ArcPaperPolicy::admit(const OffloadKey& key, bool is_full, std::vector<std::uint32_t>& slots) {
  const std::uint32_t ghost = ghosts_.find(key);
  const bool is_back = ghost != kNoIndex;
  const bool was_in_b2 = is_back && ghosts_.list_of(ghost) == GhostKeys::List::b2;
  bool leaves_ghost = true;
  if (is_back) {
    move_target(ghosts_.list_of(ghost));
    ghosts_.forget(key);
  } else {
    leaves_ghost = evict_ghost_if_full();
  }
  if (is_full) {
    const double t1_size = queues_.size(kT1);
    const bool prefers_t1 = t1_size > target_t1_size_ || (was_in_b2 && t1_size == target_t1_size_);
    slots.push_back(take_oldest(prefers_t1 || !leaves_ghost, leaves_ghost));
  }
  queues_.announce(is_back ? kT2 : kT1);
}

void ArcPaperPolicy::append_next_victims(std::size_t most, std::vector<std::uint32_t>& slots) const {
  queues_.append_oldest(queues_.size(kT1) > target_t1_size_ ? kT1 : kT2, most, slots);
}

void ArcPaperPolicy::move_target(GhostKeys::List hit) {
  const auto b1 = static_cast<double>(ghosts_.size(GhostKeys::List::b1));
  QUIRE_CHECK(ghosts_.size(hit) > 0, "the key that returned is in its ghost list");
  const auto b2 = static_cast<double>(ghosts_.size(GhostKeys::List::b2));
  if (hit == GhostKeys::List::b1)
    target_t1_size_ = std::min(target_t1_size_ + std::max(1.0, b2 / b1), static_cast<double>(num_slots_));
  else
    target_t1_size_ = std::max(target_t1_size_ - std::max(1.0, b1 / b2), 0.0);
}

// Forgets a ghost if a new key would make the lists too large. Returns false if L1 is full of resident keys: one of them is then evicted
// without leaving a ghost.
bool ArcPaperPolicy::evict_ghost_if_full() {
  if (size_of_l1() == num_slots_) {
    if (ghosts_.size(GhostKeys::List::b1) == 0) return false;
    ghosts_.forget_oldest(GhostKeys::List::b1);
  } else if (size_of_l1() + size_of_l2() == 2 * num_slots_) {
    QUIRE_CHECK(ghosts_.size(GhostKeys::List::b2) > 0, "list B2 has keys when both lists are full");
    ghosts_.forget_oldest(GhostKeys::List::b2);
  }
  return true;
}

std::uint32_t ArcPaperPolicy::take_oldest(bool prefers_t1, bool leaves_ghost) {
  const bool from_t1 = queues_.oldest_evictable(prefers_t1 ? kT1 : kT2) == kNoIndex ? !prefers_t1 : prefers_t1;
  const std::uint32_t slot = queues_.oldest_evictable(from_t1 ? kT1 : kT2);
  QUIRE_CHECK(slot != kNoIndex, "there is an evictable slot");
  queues_.remove(slot);
  if (leaves_ghost) ghosts_.push(from_t1 ? GhostKeys::List::b1 : GhostKeys::List::b2, keys_.key_of(slot));
  return slot;
}

// The paper has no such operation. It is not a request for the block, so the target does not change.
void ArcPaperPolicy::insert_oldest(std::uint32_t slot) {
  ghosts_.forget(keys_.key_of(slot));
  evict_ghost_if_full();
  queues_.insert_oldest(kT1, slot);
}

PolicySnapshot ArcPaperPolicy::snapshot() const {
  PolicySnapshot snapshot{.lists = {}, .target_t1_size = target_t1_size_};
  for (const SlotQueues::Queue queue : {kT1, kT2}) {
    auto& keys = snapshot.lists.emplace_back();
    queues_.all(queue).for_each([&](std::uint32_t slot) { keys.push_back(keys_.key_of(slot)); });
  }
  snapshot.lists.push_back(ghosts_.keys(GhostKeys::List::b1));
  snapshot.lists.push_back(ghosts_.keys(GhostKeys::List::b2));
  return snapshot;
}

void ArcPaperPolicy::check_invariants() const {
  queues_.check_invariants();
  ghosts_.check_invariants(keys_);
  QUIRE_CHECK(size_of_l1() <= num_slots_ && size_of_l1() + size_of_l2() <= 2 * num_slots_,
              "ARC remembers at most twice as many keys as there are slots");
  QUIRE_CHECK(target_t1_size_ >= 0 && target_t1_size_ <= num_slots_, "the target size of T1 does not exceed the tier");
}

}  // namespace quire
