#pragma once
// S3-FIFO: J. Yang, Y. Zhang, Z. Qiu, Y. Yue, K. V. Rashmi, "FIFO Queues are All You Need for Cache Eviction", SOSP 2023, algorithm 1. New
// blocks enter a small queue of a tenth of the tier's slots. Blocks that are used more than once in the small queue move to the main queue;
// all other blocks are evicted soon. A block that returns while its key is a ghost enters the main queue directly. As in the authors'
// implementation, ghosts are checked before new ghosts are added. A block in transfer cannot be evicted: the policy then evicts the next
// block of the same queue, or one of the other queue.
#include "core/offload/ghost_keys.h"
#include "core/offload/key_index.h"
#include "core/offload/slot_queues.h"
#include "quire/eviction_policy.h"

namespace quire {

class S3FifoPolicy final : public EvictionPolicy {
 public:
  // `keys` (by slot) must outlive the policy.
  S3FifoPolicy(std::uint32_t num_slots, const KeyIndex& keys);

  void insert(std::uint32_t slot) override;
  void insert_oldest(std::uint32_t slot) override;
  void replace(std::uint32_t old, std::uint32_t slot) override;
  void remove(std::uint32_t slot) override { queues_.remove(slot); }
  void touch(std::uint32_t /*slot*/, bool /*ready*/) override {}
  void use(std::uint32_t slot) override;
  void set_evictable(std::uint32_t slot, bool evictable) override { queues_.set_evictable(slot, evictable); }
  bool evict(std::uint32_t count, std::span<const OffloadKey> incoming, std::vector<std::uint32_t>& slots) override;

  // Uses the current state: a slot that is used before the next eviction is perhaps not evicted.
  void append_next_victims(std::size_t most, std::vector<std::uint32_t>& slots) const override;
  [[nodiscard]] bool is_evictable(std::uint32_t slot) const override { return queues_.is_evictable(slot); }
  [[nodiscard]] std::uint32_t num_resident() const override { return queues_.num_resident(); }
  [[nodiscard]] PolicySnapshot snapshot() const override;
  void check_invariants() const override;

 private:
  static constexpr SlotQueues::Queue kSmall = SlotQueues::Queue::first;
  static constexpr SlotQueues::Queue kMain = SlotQueues::Queue::second;
  static constexpr GhostKeys::List kGhosts = GhostKeys::List::b1;

  std::uint32_t take_victim();

  std::uint32_t small_size_;
  const KeyIndex& keys_;
  SlotQueues queues_;
  std::vector<std::uint8_t> num_uses_;  // by slot: number of uses since the slot entered its queue, at most three
  GhostKeys ghosts_;                    // its capacity is the size of the main queue
};

}  // namespace quire
