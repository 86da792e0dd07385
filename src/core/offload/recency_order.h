#pragma once
// Slots from the least to the most recently used, and among them, in the same order, those that may be evicted: the next victim is found
// at once however many blocks in transfer lie before it.
#include <cstdint>
#include <span>
#include <vector>

#include "core/offload/index_list.h"

namespace quire {

// Links of slots, each of which is in one order at a time.
struct RecencyLinks {
  explicit RecencyLinks(std::uint32_t num_slots) : all(num_slots), evictable(num_slots) {}

  std::vector<IndexLink> all;
  std::vector<IndexLink> evictable;
};

// Owned by policies. Everything is O(1) but making a slot evictable.
class RecencyOrder {
 public:
  // The links must outlive the order.
  explicit RecencyOrder(RecencyLinks& links) : all_(links.all), evictable_(links.evictable) {}

  [[nodiscard]] std::uint32_t size() const { return all_.size(); }
  [[nodiscard]] std::uint32_t num_evictable() const { return evictable_.size(); }
  // kNoIndex: none.
  [[nodiscard]] std::uint32_t oldest_evictable() const { return evictable_.front(); }
  [[nodiscard]] bool is_evictable(std::uint32_t slot) const { return evictable_.linked(slot); }
  [[nodiscard]] const IndexList& all() const { return all_; }

  // A slot is added as not evictable.
  void push_newest(std::uint32_t slot) { all_.push_back(slot); }
  void push_oldest(std::uint32_t slot) { all_.push_front(slot); }
  void remove(std::uint32_t slot);
  void touch(std::uint32_t slot);
  // `slot` takes the place of `old`, which is removed.
  void replace(std::uint32_t old, std::uint32_t slot);
  // Towards true it walks to the nearest evictable slot, at most half of the run of slots in transfer around this one.
  void set_evictable(std::uint32_t slot, bool evictable);

  void check_invariants() const;

 private:
  void link_evictable(std::uint32_t slot);

  IndexList all_;
  IndexList evictable_;
};

}  // namespace quire
