#pragma once
// Two queues of a tier's slots, oldest first. Each resident slot is in one of them.
#include <array>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "core/offload/recency_order.h"

namespace quire {

// Shared by the policies with two queues. A policy announces the queue of each new key first, and the key is inserted later, because the
// ledger stores keys only after the policy has decided which slots it evicts.
class SlotQueues {
 public:
  enum class Queue : std::uint8_t { first, second };

  explicit SlotQueues(std::uint32_t num_slots)
      : links_(num_slots), orders_{RecencyOrder(links_), RecencyOrder(links_)}, queue_of_(num_slots) {}
  SlotQueues(const SlotQueues&) = delete;
  SlotQueues& operator=(const SlotQueues&) = delete;

  // Returns the number of slots in the queue, including announced keys that are not inserted yet.
  [[nodiscard]] std::uint32_t size(Queue queue) const { return of(queue).size() + num_announced_[index(queue)]; }
  [[nodiscard]] std::uint32_t num_resident() const { return of(Queue::first).size() + of(Queue::second).size(); }
  [[nodiscard]] std::uint32_t num_evictable() const { return of(Queue::first).num_evictable() + of(Queue::second).num_evictable(); }
  // Returns kNoIndex if no slot is evictable.
  [[nodiscard]] std::uint32_t oldest_evictable(Queue queue) const { return of(queue).oldest_evictable(); }
  [[nodiscard]] bool is_evictable(std::uint32_t slot) const { return orders_[0].is_evictable(slot); }
  [[nodiscard]] const IndexList& all(Queue queue) const { return of(queue).all(); }
  // Appends at most `most` evictable slots, oldest first: first slots of `queue`, then slots of the other queue.
  void append_oldest(Queue queue, std::size_t most, std::vector<std::uint32_t>& slots) const {
    const std::size_t end = slots.size() + most;
    of(queue).append_oldest(most, slots);
    of(queue == Queue::first ? Queue::second : Queue::first).append_oldest(end - slots.size(), slots);
  }

  // Announces the queue of the next key. Exactly one insert() or replace() must follow for each announcement, in the same order.
  void announce(Queue queue);
  // Inserts the slot as the newest of the announced queue. The slot is not evictable.
  void insert(std::uint32_t slot);
  // Puts `slot` at the position of `old`, regardless of the announced queue. Both slots are not evictable.
  void replace(std::uint32_t old, std::uint32_t slot);
  void insert_oldest(Queue queue, std::uint32_t slot);
  void remove(std::uint32_t slot) {
    QUIRE_CHECK(slot < queue_of_.size(), "a removed slot is in the tier");
    of(queue_of_[slot]).remove(slot);
  }
  // Moves the slot to the newest end of `queue`. Does not change whether the slot is evictable.
  void move(std::uint32_t slot, Queue queue);
  void set_evictable(std::uint32_t slot, bool evictable) {
    QUIRE_CHECK(slot < queue_of_.size(), "a slot that becomes evictable or not is in the tier");
    of(queue_of_[slot]).set_evictable(slot, evictable);
  }

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
  std::size_t num_taken_ = 0;  // number of entries of announced_ that were used
  std::array<std::uint32_t, 2> num_announced_{};
};

}  // namespace quire
