#pragma once
// Evicts the least recently used block first.
#include "core/offload/key_index.h"
#include "core/offload/recency_order.h"
#include "quire/eviction_policy.h"

namespace quire {

// vLLM's LRUCachePolicy. A touch makes a block the newest, even if the block is not completely stored yet.
class LruPolicy final : public EvictionPolicy {
 public:
  // `keys` (by slot) must outlive the policy.
  LruPolicy(std::uint32_t num_slots, const KeyIndex& keys) : keys_(keys), links_(num_slots), order_(links_) {}
  LruPolicy(const LruPolicy&) = delete;
  LruPolicy& operator=(const LruPolicy&) = delete;

  void insert(std::uint32_t slot) override { order_.push_newest(slot); }
  void insert_oldest(std::uint32_t slot) override { order_.push_oldest(slot); }
  void replace(std::uint32_t old, std::uint32_t slot) override { order_.replace(old, slot); }
  void remove(std::uint32_t slot) override { order_.remove(slot); }
  void touch(std::uint32_t slot, bool /*ready*/) override { order_.touch(slot); }
  void set_evictable(std::uint32_t slot, bool evictable) override { order_.set_evictable(slot, evictable); }
  bool evict(std::uint32_t count, std::span<const OffloadKey> incoming, std::vector<std::uint32_t>& slots) override;
  void append_next_victims(std::size_t most, std::vector<std::uint32_t>& slots) const override { order_.append_oldest(most, slots); }

  [[nodiscard]] bool is_evictable(std::uint32_t slot) const override { return order_.is_evictable(slot); }
  [[nodiscard]] std::uint32_t num_resident() const override { return order_.size(); }
  [[nodiscard]] PolicySnapshot snapshot() const override;
  void check_invariants() const override { order_.check_invariants(); }

 private:
  const KeyIndex& keys_;
  RecencyLinks links_;
  RecencyOrder order_;
};

}  // namespace quire
