#pragma once
// vLLM's variant of adaptive replacement: T1 has blocks used once, T2 those used again; B1 and B2 remember keys that were evicted from
// them, and a use of one of those moves the target size of T1. Unlike in the paper, every new block goes into T1, also one that B1 or B2
// remembers, and one eviction never goes back from T2 to T1.
#include "core/offload/eviction_policy.h"
#include "core/offload/recency_order.h"

namespace quire {

// Keys that were evicted, from the oldest on, each in one of two lists of at most `capacity`.
class GhostKeys {
 public:
  enum class List : std::uint8_t { b1, b2 };

  explicit GhostKeys(std::uint32_t capacity);
  GhostKeys(const GhostKeys&) = delete;
  GhostKeys& operator=(const GhostKeys&) = delete;

  [[nodiscard]] std::uint32_t size(List list) const { return of(list).size(); }
  // kNoIndex: unknown. Otherwise an entry for the two calls below.
  [[nodiscard]] std::uint32_t find(const OffloadKey& key) const { return index_.find(key); }
  [[nodiscard]] List list_of(std::uint32_t entry) const { return list_of_[entry]; }
  void touch(std::uint32_t entry);

  // The key, which is in neither list, becomes the newest; a full list forgets its oldest first.
  void push(List list, const OffloadKey& key);
  void forget(const OffloadKey& key);

  [[nodiscard]] std::vector<OffloadKey> keys(List list) const;
  void check_invariants(const KeyIndex& residents) const;

 private:
  [[nodiscard]] const IndexList& of(List list) const { return list == List::b1 ? b1_ : b2_; }
  [[nodiscard]] IndexList& of(List list) { return list == List::b1 ? b1_ : b2_; }
  void drop(std::uint32_t entry);

  std::uint32_t capacity_;
  KeyIndex index_;
  std::vector<List> list_of_;
  std::vector<std::uint32_t> free_;
  std::vector<IndexLink> links_;
  IndexList b1_;
  IndexList b2_;
};

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
  void touch_absent(const OffloadKey& key) override;
  void set_evictable(std::uint32_t slot, bool evictable) override { of(slot).set_evictable(slot, evictable); }
  bool evict(std::uint32_t count, std::vector<std::uint32_t>& slots) override;

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
  std::vector<std::uint8_t> in_t2_;
  GhostKeys ghosts_;
  double target_t1_size_ = 0;
};

}  // namespace quire
