// A block is linked (free) or not linked (held). pop_front() and remove() unlink it; the push functions link it. The block pool calls the
// queue in every step. Each change checks the neighbours: a broken list would allocate a block twice, which would show much later as wrong
// output.
#include "core/kv/free_queue.h"

#include "base/check.h"

namespace quire {

FreeQueue::FreeQueue(std::uint32_t num_blocks, const SegmentLimits& limits)
    : limits_(limits), links_(num_blocks + kNumFreeSegments), segment_of_(num_blocks, 0) {
  clear();
  for (std::uint32_t i = 0; i < num_blocks; ++i) push_back(BlockId{i});
  QUIRE_CHECK(size_ == num_blocks, "all blocks are free at first");
}

void FreeQueue::clear() {
  links_.assign(links_.size(), {});
  links_[sentinel()] = {sentinel(), sentinel()};
  for (std::size_t segment = 1; segment < kNumFreeSegments; ++segment) link_between(links_[sentinel()].prev, boundary(segment), sentinel());
  segment_of_.assign(segment_of_.size(), 0);
  size_ = 0;
  counts_ = {};
}

BlockId FreeQueue::pop_front() {
  QUIRE_CHECK(size_ > 0, "there is a free block");
  std::uint32_t first = links_[sentinel()].next;
  while (first >= num_blocks()) first = links_[first].next;  // the boundaries of empty segments
  const BlockId block{first};
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

void FreeQueue::push_back(BlockId block, FreeSegment segment) {
  QUIRE_CHECK(block.value < num_blocks(), "the freed block is in the pool");
  const auto at = static_cast<std::size_t>(segment);
  const std::uint32_t end = boundary((at + 1) % kNumFreeSegments);
  link_between(links_[end].prev, block.value, end);
  segment_of_[block.value] = static_cast<std::uint8_t>(segment);
  ++size_;
  ++counts_[at];
  if (segment != FreeSegment::normal) apply_limits();
}

void FreeQueue::push_front(BlockId block) {
  QUIRE_CHECK(block.value < num_blocks(), "the freed block is in the pool");
  link_between(sentinel(), block.value, links_[sentinel()].next);
  ++size_;
  ++counts_[0];
}

BlockId FreeQueue::oldest(FreeSegment segment) const {
  QUIRE_CHECK(count(segment) > 0, "the segment has a block");
  return BlockId{links_[boundary(static_cast<std::size_t>(segment))].next};
}

void FreeQueue::merge_segments() {
  for (std::size_t segment = kNumFreeSegments - 1; segment > 0; --segment)
    while (counts_[segment] > 0) move_boundary(segment);
}

void FreeQueue::apply_limits() {
  for (std::size_t segment = kNumFreeSegments - 1; segment > 0; --segment)
    while (counts_[segment] > limit(segment)) move_boundary(segment);
}

void FreeQueue::move_boundary(std::size_t segment) {
  const std::uint32_t oldest = links_[boundary(segment)].next;
  QUIRE_CHECK(oldest < num_blocks() && segment_of_[oldest] == segment, "the blocks of a segment follow its boundary");
  unlink(boundary(segment));
  link_between(oldest, boundary(segment), links_[oldest].next);
  segment_of_[oldest] = static_cast<std::uint8_t>(segment - 1);
  --counts_[segment];
  ++counts_[segment - 1];
}

void FreeQueue::remove(BlockId block) {
  QUIRE_CHECK(block.value < num_blocks() && contains(block), "the block is in the free queue");
  unlink(block.value);
  --size_;
  --counts_[segment_of_[block.value]];
  segment_of_[block.value] = 0;
}

std::vector<BlockId> FreeQueue::to_vector() const {
  std::vector<BlockId> blocks;
  for (std::uint32_t at = links_[sentinel()].next; at != sentinel(); at = links_[at].next)
    if (at < num_blocks()) blocks.push_back(BlockId{at});
  QUIRE_CHECK(blocks.size() == size_, "the size equals the number of free blocks");
  return blocks;
}

void FreeQueue::check_invariants() const {
  std::uint32_t num_linked = 0;
  for (std::uint32_t at = 0; at < links_.size(); ++at) {
    const Link& link = links_[at];
    QUIRE_CHECK((link.prev == kUnlinked) == (link.next == kUnlinked), "a block is linked both ways or not at all");
    QUIRE_CHECK(link.next != kUnlinked || at < num_blocks(), "the sentinel and the boundaries are linked");
    QUIRE_CHECK(link.next != kUnlinked || segment_of_[at] == 0, "a block that is not free is in no segment");
    if (link.next == kUnlinked) continue;
    QUIRE_CHECK(link.next < links_.size() && links_[link.next].prev == at, "the next block links back");
    num_linked += at < num_blocks() ? 1 : 0;
  }
  QUIRE_CHECK(num_linked == size_, "the free blocks are linked");
  Counts counts{};
  std::size_t segment = 0;
  for (std::uint32_t at = links_[sentinel()].next; at != sentinel(); at = links_[at].next) {
    if (at >= num_blocks()) {
      QUIRE_CHECK(at == boundary(++segment), "the boundaries are linked in the order of the segments");
      continue;
    }
    QUIRE_CHECK(segment_of_[at] == segment, "a block is after the boundary of its segment");
    ++counts[segment];
  }
  QUIRE_CHECK(segment + 1 == kNumFreeSegments && counts == counts_, "the counts of the segments are correct");
  QUIRE_CHECK(counts_[1] <= limit(1) && counts_[2] <= limit(2), "no segment has more blocks than its limit");
}

bool FreeQueue::assign(std::span<const BlockId> blocks, const Counts& counts) {
  clear();
  if (std::uint64_t{counts[0]} + counts[1] + counts[2] != blocks.size() || counts[1] > limit(1) || counts[2] > limit(2)) return false;
  std::size_t segment = 0;
  for (const BlockId block : blocks) {
    if (block.value >= num_blocks() || contains(block)) return false;
    while (counts_[segment] == counts[segment]) ++segment;
    push_back(block, static_cast<FreeSegment>(segment));
  }
  QUIRE_CHECK(size_ == blocks.size(), "each assigned block is free");
  return true;
}

}  // namespace quire
