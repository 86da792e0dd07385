#pragma once
// Adaptive replacement as in the paper: N. Megiddo, D. S. Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache", FAST 2003, figure 4.
// vLLM's variant (arc_policy.h) differs in the effect of a returning ghost, in when the target changes, and in which block is evicted. A
// block in transfer cannot be evicted: the policy then evicts the next block of the same list, or one of the other list.
#include "core/offload/ghost_keys.h"
#include "core/offload/key_index.h"
#include "core/offload/slot_queues.h"
#include "quire/eviction_policy.h"

namespace quire {

// Called by the ledger on the core's thread. evict() decides the list of each incoming key, as the paper does before it makes room. The
// ledger inserts the keys afterwards.
class ArcPaperPolicy final : public EvictionPolicy {
 public:
  // `keys` (by slot) must outlive the policy.
  ArcPaperPolicy(std::uint32_t num_slots, const KeyIndex& keys)
      : num_slots_(num_slots), keys_(keys), queues_(num_slots), ghosts_(num_slots) {}

  void insert(std::uint32_t slot) override { queues_.insert(slot); }
  void insert_oldest(std::uint32_t slot) override;
  void replace(std::uint32_t old, std::uint32_t slot) override { queues_.replace(old, slot); }
  void remove(std::uint32_t slot) override { queues_.remove(slot); }
  void touch(std::uint32_t /*slot*/, bool /*ready*/) override {}
  void use(std::uint32_t slot) override { queues_.move(slot, kT2); }
  void set_evictable(std::uint32_t slot, bool evictable) override { queues_.set_evictable(slot, evictable); }
  bool evict(std::uint32_t count, std::span<const OffloadKey> incoming, std::vector<std::uint32_t>& slots) override;

  // Uses the current state: a slot that is used before the next eviction is perhaps not evicted.
  void append_next_victims(std::size_t most, std::vector<std::uint32_t>& slots) const override;
  [[nodiscard]] bool is_evictable(std::uint32_t slot) const override { return queues_.is_evictable(slot); }
  [[nodiscard]] std::uint32_t num_resident() const override { return queues_.num_resident(); }
  [[nodiscard]] PolicySnapshot snapshot() const override;
  void check_invariants() const override;

 private:
  static constexpr SlotQueues::Queue kT1 = SlotQueues::Queue::first;
  static constexpr SlotQueues::Queue kT2 = SlotQueues::Queue::second;

  [[nodiscard]] std::uint32_t size_of_l1() const { return queues_.size(kT1) + ghosts_.size(GhostKeys::List::b1); }
  [[nodiscard]] std::uint32_t size_of_l2() const { return queues_.size(kT2) + ghosts_.size(GhostKeys::List::b2); }
  void admit(const OffloadKey& key, bool is_full, std::vector<std::uint32_t>& slots);
  void move_target(GhostKeys::List hit);
  bool evict_ghost_if_full();
  std::uint32_t take_oldest(bool prefers_t1, bool leaves_ghost);

  std::uint32_t num_slots_;
  const KeyIndex& keys_;
  SlotQueues queues_;
  GhostKeys ghosts_;
  // In slots, from 0 to num_slots. A floating-point number, because the target can change by fractions if one ghost list is much longer
  // than the other.
  double target_t1_size_ = 0;  // p in the paper
};

}  // namespace quire
