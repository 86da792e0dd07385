#pragma once
// Slots from the least to the most recently used, and the evictable slots among them in the same order. The next slot to evict is found in
// O(1), however many slots in transfer come before it.
#include <cstdint>
#include <span>
#include <vector>

#include "core/offload/index_list.h"

namespace quire {

// The links of the slots. Each slot is in one order at a time.
struct RecencyLinks {
  explicit RecencyLinks(std::uint32_t num_slots) : all(num_slots), evictable(num_slots) {}

  std::vector<IndexLink> all;
  std::vector<IndexLink> evictable;
};

// Owned by policies. All operations are O(1), except making a slot evictable.
class RecencyOrder {
 public:
  // The links must outlive the order.
  explicit RecencyOrder(RecencyLinks& links) : all_(links.all), evictable_(links.evictable) {}

  [[nodiscard]] std::uint32_t size() const { return all_.size(); }
  [[nodiscard]] std::uint32_t num_evictable() const { return evictable_.size(); }
  // Returns kNoIndex if no slot is evictable.
  [[nodiscard]] std::uint32_t oldest_evictable() const { return evictable_.front(); }
  [[nodiscard]] bool is_evictable(std::uint32_t slot) const { return evictable_.linked(slot); }
  [[nodiscard]] const IndexList& all() const { return all_; }
  // Appends at most `most` evictable slots, oldest first.
  void append_oldest(std::size_t most, std::vector<std::uint32_t>& slots) const;

  // Adds a slot that is not evictable.
  void push_newest(std::uint32_t slot) { all_.push_back(slot); }
  void push_oldest(std::uint32_t slot) { all_.push_front(slot); }
  void remove(std::uint32_t slot);
  void touch(std::uint32_t slot);
  // Puts `slot` at the position of `old`, and removes `old`.
  void replace(std::uint32_t old, std::uint32_t slot);
  // Makes a slot evictable or not. To make it evictable, searches the nearest evictable slot in the order, past at most half of the
  // neighbouring slots in transfer.
  void set_evictable(std::uint32_t slot, bool evictable);

  void check_invariants() const;

 private:
  void link_evictable(std::uint32_t slot);

  IndexList all_;
  IndexList evictable_;
};

}  // namespace quire
