#pragma once
// Free blocks in the order of their reuse, front first. A doubly linked list in an array indexed by block id. push, pop and remove are O(1)
// and allocate nothing.
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "quire/base/ids.h"

namespace quire {

// Belongs to the block pool. The block at the front is reused next, so the choice between push_front() and push_back() decides how long
// cached content stays.
class FreeQueue {
 public:
  // Begins with all blocks 0 .. num_blocks - 1 free, in this order.
  explicit FreeQueue(std::uint32_t num_blocks);

  [[nodiscard]] std::uint32_t size() const { return size_; }
  [[nodiscard]] bool contains(BlockId block) const {
    QUIRE_CHECK(block.value < num_blocks(), "the queried block is in the pool");
    return links_[block.value].next != kUnlinked;
  }

  // The queue must not be empty.
  BlockId pop_front();
  // Adds the block after all blocks that are not protected.
  void push_back(BlockId block);
  void push_front(BlockId block);
  // Adds the block at the end and protects it. Protected blocks are reused after all other blocks. If there are more than `max_protected`,
  // the oldest protected blocks become the newest unprotected blocks.
  void push_protected(BlockId block, std::uint32_t max_protected);
  void remove(BlockId block);
  [[nodiscard]] std::uint32_t num_protected() const { return num_protected_; }
  // Makes all protected blocks unprotected. The order of blocks does not change.
  void end_protection() { protect_at_most(0); }

  // Returns the blocks in order of reuse; for tests and checks.
  [[nodiscard]] std::vector<BlockId> to_vector() const;
  // Stops the program if the links of two neighbours disagree or a count is wrong.
  void check_invariants() const;
  // Replaces the content by these blocks, in this order. Returns false if a block is out of range or listed twice. The queue is then
  // unusable.
  [[nodiscard]] bool assign(std::span<const BlockId> blocks, std::uint32_t num_protected = 0);

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [links, is_protected, size, num_protected] = self;
    std::vector<BlockId> order;
    std::uint32_t count = num_protected;
    if constexpr (!Archive::kIsReading) order = self.to_vector();
    form(order, count);
    if constexpr (Archive::kIsReading) form.expect(self.assign(order, count), "the free queue contains blocks of the pool, each once");
  }

 private:
  static constexpr std::uint32_t kUnlinked = UINT32_MAX;
  // Indices take half the memory of pointers. The link of a block is at the index of its id.
  struct Link {
    std::uint32_t prev = kUnlinked;
    std::uint32_t next = kUnlinked;
  };

  // The arguments of link_between() and unlink() are indices of links_: of a block, of the sentinel, or of the boundary.
  void link_between(std::uint32_t prev, std::uint32_t at, std::uint32_t next);
  void unlink(std::uint32_t at);
  void protect_at_most(std::uint32_t max_protected);
  [[nodiscard]] std::uint32_t num_blocks() const { return static_cast<std::uint32_t>(is_protected_.size()); }
  [[nodiscard]] std::uint32_t sentinel() const { return num_blocks(); }
  [[nodiscard]] std::uint32_t boundary() const { return num_blocks() + 1; }

  // The links of the blocks, of the sentinel (its next is the head, its prev the tail), and of the boundary before the protected blocks.
  std::vector<Link> links_;
  std::vector<std::uint8_t> is_protected_;  // indexed by block id; false for a block that is not free
  std::uint32_t size_ = 0;
  std::uint32_t num_protected_ = 0;
};

}  // namespace quire
