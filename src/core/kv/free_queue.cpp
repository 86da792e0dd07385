// A block is linked (free) or not (held). pop_front and remove unlink it, the push functions link it; nothing else moves it. The block pool
// calls it in every step. Each change checks its neighbours: a broken list would allocate a block twice, which shows much later as wrong
// text.
#include "core/kv/free_queue.h"

#include "base/check.h"

namespace quire {

FreeQueue::FreeQueue(std::uint32_t num_blocks) : links_(num_blocks + 1) {
  links_[num_blocks] = {num_blocks, num_blocks};
  for (std::uint32_t i = 0; i < num_blocks; ++i) push_back(BlockId{i});
  QUIRE_CHECK(size_ == num_blocks, "all blocks are free at first");
}

BlockId FreeQueue::pop_front() {
  QUIRE_CHECK(size_ > 0, "there is a free block");
  BlockId block{links_[sentinel()].next};
  remove(block);
  return block;
}

void FreeQueue::link_between(std::uint32_t prev, BlockId block, std::uint32_t next) {
  QUIRE_CHECK(block.value < sentinel() && !contains(block), "the block is not in the free queue");
  QUIRE_CHECK(links_[prev].next == next && links_[next].prev == prev, "the neighbours are adjacent in the free queue");
  links_[block.value] = {prev, next};
  links_[prev].next = block.value;
  links_[next].prev = block.value;
  ++size_;
}

void FreeQueue::push_back(BlockId block) {
  link_between(links_[sentinel()].prev, block, sentinel());
}

void FreeQueue::push_front(BlockId block) {
  link_between(sentinel(), block, links_[sentinel()].next);
}

void FreeQueue::remove(BlockId block) {
  QUIRE_CHECK(block.value < sentinel() && contains(block), "the block is in the free queue");
  const Link link = links_[block.value];
  QUIRE_CHECK(links_[link.prev].next == block.value && links_[link.next].prev == block.value, "the neighbours of a block link to it");
  links_[link.prev].next = link.next;
  links_[link.next].prev = link.prev;
  links_[block.value] = {};
  --size_;
}

std::vector<BlockId> FreeQueue::to_vector() const {
  std::vector<BlockId> blocks;
  for (std::uint32_t at = links_[sentinel()].next; at != sentinel(); at = links_[at].next) blocks.push_back(BlockId{at});
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
    num_linked += at == sentinel() ? 0 : 1;
  }
  QUIRE_CHECK(num_linked == size_ && links_[sentinel()].next != kUnlinked, "only free blocks and the sentinel are linked");
}

bool FreeQueue::assign(std::span<const BlockId> blocks) {
  links_.assign(links_.size(), {});
  links_[sentinel()] = {sentinel(), sentinel()};
  size_ = 0;
  for (const BlockId block : blocks) {
    if (block.value >= sentinel() || contains(block)) return false;
    push_back(block);
  }
  QUIRE_CHECK(size_ == blocks.size(), "each assigned block is free");
  return true;
}

}  // namespace quire
