#pragma once
// Two queues over the slots of a tier, each slot in one of them, from the oldest on.
#include <array>
#include <cstdint>
#include <vector>

#include "core/offload/recency_order.h"

namespace quire {

// Shared by the policies that have two queues. Keys are announced first and inserted later, because the ledger stores them only when the
// policy has said who goes.
class SlotQueues {
 public:
  enum class Queue : std::uint8_t { first, second };

  explicit SlotQueues(std::uint32_t num_slots)
      : links_(num_slots), orders_{RecencyOrder(links_), RecencyOrder(links_)}, queue_of_(num_slots) {}
  SlotQueues(const SlotQueues&) = delete;
  SlotQueues& operator=(const SlotQueues&) = delete;

  // With what was announced and is not inserted yet.
  [[nodiscard]] std::uint32_t size(Queue queue) const { return of(queue).size() + num_announced_[index(queue)]; }
  [[nodiscard]] std::uint32_t num_resident() const { return of(Queue::first).size() + of(Queue::second).size(); }
  [[nodiscard]] std::uint32_t num_evictable() const { return of(Queue::first).num_evictable() + of(Queue::second).num_evictable(); }
  // kNoIndex: none.
  [[nodiscard]] std::uint32_t oldest_evictable(Queue queue) const { return of(queue).oldest_evictable(); }
  [[nodiscard]] bool is_evictable(std::uint32_t slot) const { return orders_[0].is_evictable(slot); }
  [[nodiscard]] const IndexList& all(Queue queue) const { return of(queue).all(); }

  // Into which queue the next key goes: one insert() or replace() follows for each, in the same order.
  void announce(Queue queue);
  // As the newest, not evictable.
  void insert(std::uint32_t slot);
  // `slot` takes the place of `old`, whichever queue was announced; neither is evictable.
  void replace(std::uint32_t old, std::uint32_t slot);
  void insert_oldest(Queue queue, std::uint32_t slot);
  void remove(std::uint32_t slot) { of(queue_of_[slot]).remove(slot); }
  // To the newest end, evictable as before.
  void move(std::uint32_t slot, Queue queue);
  void set_evictable(std::uint32_t slot, bool evictable) { of(queue_of_[slot]).set_evictable(slot, evictable); }

  void check_invariants() const;

 private:
  static std::size_t index(Queue queue) { return static_cast<std::size_t>(queue); }
  [[nodiscard]] const RecencyOrder& of(Queue queue) const { return orders_[index(queue)]; }
  [[nodiscard]] RecencyOrder& of(Queue queue) { return orders_[index(queue)]; }
  Queue take_announced();

  RecencyLinks links_;
  std::array<RecencyOrder, 2> orders_;
  std::vector<Queue> queue_of_;
  std::vector<Queue> announced_;
  std::size_t num_taken_ = 0;  // of announced_
  std::array<std::uint32_t, 2> num_announced_{};
};

}  // namespace quire
