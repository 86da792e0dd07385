// A block is linked (free) or not linked (held). pop_front() and remove() unlink it; the push functions link it. The block pool calls the
// queue in every step. Each change checks the neighbours: a broken list would allocate a block twice, which would show much later as wrong
// output.
#include "core/kv/free_queue.h"

#include <algorithm>

#include "base/check.h"

namespace quire {

FreeQueue::FreeQueue(std::uint32_t num_blocks) : links_(num_blocks + 2), is_protected_(num_blocks, 0) {
  links_[sentinel()] = {boundary(), boundary()};
  links_[boundary()] = {sentinel(), sentinel()};
  for (std::uint32_t i = 0; i < num_blocks; ++i) push_back(BlockId{i});
  QUIRE_CHECK(size_ == num_blocks, "all blocks are free at first");
}

BlockId FreeQueue::pop_front() {
  QUIRE_CHECK(size_ > 0, "there is a free block");
  const std::uint32_t first = links_[sentinel()].next;
  const BlockId block{first == boundary() ? links_[boundary()].next : first};
  remove(block);
  return block;
}

void FreeQueue::link_between(std::uint32_t prev, std::uint32_t at, std::uint32_t next) {
  QUIRE_CHECK(links_[at].next == kUnlinked, "the block is not in the free queue");
  QUIRE_CHECK(links_[prev].next == next && links_[next].prev == prev, "the neighbours are adjacent in the free queue");
  links_[at] = {prev, next};
  links_[prev].next = at;
  links_[next].prev = at;
}

void FreeQueue::unlink(std::uint32_t at) {
  const Link link = links_[at];
  QUIRE_CHECK(links_[link.prev].next == at && links_[link.next].prev == at, "the neighbours link back");
  links_[link.prev].next = link.next;
  links_[link.next].prev = link.prev;
  links_[at] = {};
}

void FreeQueue::push_back(BlockId block) {
  QUIRE_CHECK(block.value < num_blocks(), "the freed block is in the pool");
  link_between(links_[boundary()].prev, block.value, boundary());
  ++size_;
}

void FreeQueue::push_front(BlockId block) {
  QUIRE_CHECK(block.value < num_blocks(), "the freed block is in the pool");
  link_between(sentinel(), block.value, links_[sentinel()].next);
  ++size_;
}

void FreeQueue::push_protected(BlockId block, std::uint32_t max_protected) {
  QUIRE_CHECK(block.value < num_blocks(), "the freed block is in the pool");
  link_between(links_[sentinel()].prev, block.value, sentinel());
  is_protected_[block.value] = 1;
  ++size_;
  ++num_protected_;
  protect_at_most(max_protected);
}

void FreeQueue::protect_at_most(std::uint32_t max_protected) {
  while (num_protected_ > max_protected) {
    const std::uint32_t oldest = links_[boundary()].next;
    QUIRE_CHECK(oldest < num_blocks() && is_protected_[oldest] != 0, "the protected blocks follow the boundary");
    unlink(boundary());
    link_between(oldest, boundary(), links_[oldest].next);
    is_protected_[oldest] = 0;
    --num_protected_;
  }
}

void FreeQueue::remove(BlockId block) {
  QUIRE_CHECK(block.value < num_blocks() && contains(block), "the block is in the free queue");
  unlink(block.value);
  --size_;
  num_protected_ -= is_protected_[block.value];
  is_protected_[block.value] = 0;
}

std::vector<BlockId> FreeQueue::to_vector() const {
  std::vector<BlockId> blocks;
  for (std::uint32_t at = links_[sentinel()].next; at != sentinel(); at = links_[at].next)
    if (at != boundary()) blocks.push_back(BlockId{at});
  QUIRE_CHECK(blocks.size() == size_, "the size equals the number of free blocks");
  return blocks;
}

void FreeQueue::check_invariants() const {
  std::uint32_t num_linked = 0;
  for (std::uint32_t at = 0; at < links_.size(); ++at) {
    const Link& link = links_[at];
    QUIRE_CHECK((link.prev == kUnlinked) == (link.next == kUnlinked), "a block is linked both ways or not at all");
    if (link.next == kUnlinked) continue;
    QUIRE_CHECK(link.next < links_.size() && links_[link.next].prev == at, "the next block links back");
    num_linked += at < num_blocks() ? 1 : 0;
  }
  QUIRE_CHECK(num_linked == size_ && links_[sentinel()].next != kUnlinked && links_[boundary()].next != kUnlinked,
              "only free blocks, the sentinel and the boundary are linked");
  std::uint32_t num_behind = 0;
  for (std::uint32_t at = links_[boundary()].next; at != sentinel(); at = links_[at].next) num_behind += is_protected_[at];
  QUIRE_CHECK(num_behind == num_protected_ && std::ranges::count(is_protected_, 1) == static_cast<std::ptrdiff_t>(num_protected_),
              "the protected blocks are the blocks behind the boundary");
}

bool FreeQueue::assign(std::span<const BlockId> blocks, std::uint32_t num_protected) {
  links_.assign(links_.size(), {});
  links_[sentinel()] = {boundary(), boundary()};
  links_[boundary()] = {sentinel(), sentinel()};
  is_protected_.assign(is_protected_.size(), 0);
  size_ = num_protected_ = 0;
  if (num_protected > blocks.size()) return false;
  for (const BlockId block : blocks) {
    if (block.value >= num_blocks() || contains(block)) return false;
    if (size_ < blocks.size() - num_protected)
      push_back(block);
    else
      push_protected(block, num_protected);
  }
  QUIRE_CHECK(size_ == blocks.size(), "each assigned block is free");
  return true;
}

}  // namespace quire
