#pragma once
// Free blocks in the order of their reuse, front first. The queue is doubly linked through arrays indexed by block id. Every operation is
// O(1) and allocates nothing.
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "quire/base/ids.h"

namespace quire {

// The block pool owns it. The order is a policy: the front is evicted next, so the push functions decide how long content stays.
class FreeQueue {
 public:
  // Starts with all blocks 0 .. num_blocks - 1 free, in this order.
  explicit FreeQueue(std::uint32_t num_blocks);

  [[nodiscard]] std::uint32_t size() const { return size_; }
  [[nodiscard]] bool contains(BlockId block) const {
    QUIRE_CHECK(block.value < links_.size(), "the queried block is in the pool");
    return links_[block.value].next != kUnlinked;
  }

  // The queue must not be empty.
  BlockId pop_front();
  void push_back(BlockId block);
  void push_front(BlockId block);
  void remove(BlockId block);

  // Returns the blocks in order of reuse; for tests and checks.
  [[nodiscard]] std::vector<BlockId> to_vector() const;
  // Stops the program if the links of two neighbours disagree.
  void check_invariants() const;
  // Replaces the content by these blocks, in this order. Returns false if a block is out of range or listed twice. The queue is then
  // unusable.
  [[nodiscard]] bool assign(std::span<const BlockId> blocks);

  // Checkpoint fields (schedule/checkpoint/state_archive.h). The binding must name every member, or it does not compile.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [links, size] = self;
    std::vector<BlockId> order;
    if constexpr (!Archive::kIsReading) order = self.to_vector();
    form(order);
    if constexpr (Archive::kIsReading) form.expect(self.assign(order), "the free queue contains blocks of the pool, each once");
  }

 private:
  static constexpr std::uint32_t kUnlinked = UINT32_MAX;
  // Indices take half the memory of pointers, and a block's id finds its link.
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
