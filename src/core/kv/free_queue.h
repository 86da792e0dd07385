#pragma once
// Free blocks in the order in which they will be reused: from the front. Doubly linked through arrays indexed by block id; every operation
// is O(1) and allocates nothing.
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "quire/base/ids.h"

namespace quire {

// Owned by the block pool. The order is a decision: the front is what is evicted next, so whoever pushes decides how long content lives.
class FreeQueue {
 public:
  // All of 0 .. num_blocks - 1 are free, in this order.
  explicit FreeQueue(std::uint32_t num_blocks);

  [[nodiscard]] std::uint32_t size() const { return size_; }
  [[nodiscard]] bool contains(BlockId block) const {
    QUIRE_CHECK(block.value < links_.size(), "asked about a block of the pool");
    return links_[block.value].next != kUnlinked;
  }

  // Must not be empty.
  BlockId pop_front();
  void push_back(BlockId block);
  void push_front(BlockId block);
  void remove(BlockId block);

  // From the next one to be reused on; for tests and checks.
  [[nodiscard]] std::vector<BlockId> to_vector() const;
  // Stops the program if neighbours do not know each other.
  void check_invariants() const;
  // These are free, in this order. False, and the queue is good for nothing: one is none of the pool's, or twice there.
  [[nodiscard]] bool assign(std::span<const BlockId> blocks);

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
    [[maybe_unused]] auto& [links, size] = self;
    std::vector<BlockId> order;
    if constexpr (!Form::kReads) order = self.to_vector();
    form(order);
    if constexpr (Form::kReads) form.expect(self.assign(order), "free blocks are of the pool, each once");
  }

 private:
  static constexpr std::uint32_t kUnlinked = UINT32_MAX;
  // Indices instead of pointers: half the memory, and a block's place is found by its id.
  struct Link {
    std::uint32_t prev = kUnlinked;
    std::uint32_t next = kUnlinked;
  };

  void link_between(std::uint32_t prev, BlockId block, std::uint32_t next);
  [[nodiscard]] std::uint32_t sentinel() const { return static_cast<std::uint32_t>(links_.size() - 1); }

  std::vector<Link> links_;  // the last one is the sentinel: its next is the head, its prev the tail
  std::uint32_t size_ = 0;
};

}  // namespace quire
