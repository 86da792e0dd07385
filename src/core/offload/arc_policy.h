#pragma once
// vLLM's variant of adaptive replacement. T1 contains blocks that were used once, T2 blocks that were used again. B1 and B2 contain keys
// that were evicted from T1 and T2; a look-up of one of these keys changes the target size of T1. Unlike in the paper, every new block
// enters T1, even if its key is in B1 or B2, and one call of evict() never evicts from T1 again after it has evicted from T2.
#include "core/offload/ghost_keys.h"
#include "core/offload/key_index.h"
#include "core/offload/recency_order.h"
#include "quire/eviction_policy.h"

namespace quire {

// Called by the ledger on the core's thread. Slots are in two orders with shared links, so moving a slot allocates nothing.
class ArcPolicy final : public EvictionPolicy {
 public:
  // `keys` (by slot) must outlive the policy.
  ArcPolicy(std::uint32_t num_slots, const KeyIndex& keys);
  ArcPolicy(const ArcPolicy&) = delete;
  ArcPolicy& operator=(const ArcPolicy&) = delete;

  void insert(std::uint32_t slot) override;
  void insert_oldest(std::uint32_t slot) override;
  void replace(std::uint32_t old, std::uint32_t slot) override;
  void remove(std::uint32_t slot) override { of(slot).remove(slot); }
  void touch(std::uint32_t slot, bool ready) override;
  void touch_missing(const OffloadKey& key) override;
  void set_evictable(std::uint32_t slot, bool evictable) override { of(slot).set_evictable(slot, evictable); }
  bool evict(std::uint32_t count, std::span<const OffloadKey> incoming, std::vector<std::uint32_t>& slots) override;
  void append_next_victims(std::size_t most, std::vector<std::uint32_t>& slots) const override;

  [[nodiscard]] bool is_evictable(std::uint32_t slot) const override { return t1_.is_evictable(slot); }
  [[nodiscard]] std::uint32_t num_resident() const override { return t1_.size() + t2_.size(); }
  [[nodiscard]] PolicySnapshot snapshot() const override;
  void check_invariants() const override;

 private:
  [[nodiscard]] RecencyOrder& of(std::uint32_t slot) { return in_t2_[slot] != 0 ? t2_ : t1_; }
  void evict_oldest(RecencyOrder& order, GhostKeys::List ghosts, std::uint32_t count, std::vector<std::uint32_t>& slots);

  std::uint32_t num_slots_;
  const KeyIndex& keys_;
  RecencyLinks links_;
  RecencyOrder t1_;
  RecencyOrder t2_;
  // By slot; undefined for a slot that is not resident.
  std::vector<std::uint8_t> in_t2_;
  GhostKeys ghosts_;
  double target_t1_size_ = 0;
};

}  // namespace quire
