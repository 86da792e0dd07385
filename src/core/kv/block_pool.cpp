// States of a block, and who moves it:
//   free, empty    in the free queue, no name                 at start; reset
//   held, empty    references > 0, no name                    allocate
//   held, cached   references > 0, findable                   cache; touch of a free one
//   free, cached   in the free queue, findable until reuse    release of the last reference
// allocate takes the head of the queue in either free state; release appends to its tail. The null block is held for ever and has no
// references.
#include "core/kv/block_pool.h"

#include "base/check.h"

namespace quire {

BlockPool::BlockPool(std::uint32_t num_blocks, EventSink* events)
    : free_(num_blocks), index_(num_blocks), ref_counts_(num_blocks, 0), events_(events) {
  QUIRE_CHECK(num_blocks >= 2, "a pool has the null block and at least one more");
  QUIRE_CHECK(free_.pop_front() == kNullBlock);
}

BlockId BlockPool::allocate() {
  const BlockId block = free_.pop_front();
  if (index_.contains(block)) {
    if (events_ != nullptr) {
      events_->on_block_evicted(block, index_.hash_of(block));
    }
    index_.remove(block);
    ++num_evicted_blocks_;
  }
  QUIRE_CHECK(ref_counts_[block.value] == 0);
  ref_counts_[block.value] = 1;
  return block;
}

void BlockPool::touch(BlockId block) {
  if (block == kNullBlock) {
    return;
  }
  if (ref_counts_[block.value]++ == 0) {
    free_.remove(block);
  }
}

void BlockPool::release(BlockId block) {
  if (block == kNullBlock) {
    return;
  }
  QUIRE_CHECK(ref_counts_[block.value] > 0, "released more often than taken");
  if (--ref_counts_[block.value] == 0) {
    free_.push_back(block);
  }
}

void BlockPool::cache(BlockId block, const BlockHash& hash) {
  QUIRE_CHECK(ref_counts_[block.value] > 0, "only a held block can be cached");
  index_.insert(hash, block);
  if (events_ != nullptr) {
    events_->on_block_cached(block, hash);
  }
}

bool BlockPool::reset() {
  if (num_free_blocks() + 1 != num_blocks()) {
    return false;
  }
  index_.clear();
  return true;
}

void BlockPool::check_invariants(std::span<const std::uint32_t> holders) const {
  QUIRE_CHECK(ref_counts_[0] == 0 && !free_.contains(kNullBlock) && !index_.contains(kNullBlock), "the null block is out of reach");
  std::uint32_t num_free = 0;
  std::uint32_t num_cached = 0;
  for (std::uint32_t i = 1; i < num_blocks(); ++i) {
    const BlockId block{i};
    QUIRE_CHECK(ref_counts_[i] == holders[i], "a reference per holder");
    QUIRE_CHECK(free_.contains(block) == (ref_counts_[i] == 0), "free or held, not both");
    num_free += free_.contains(block) ? 1 : 0;
    if (index_.contains(block)) {
      ++num_cached;
      const auto found = index_.find(index_.hash_of(block));
      QUIRE_CHECK(found && index_.hash_of(*found) == index_.hash_of(block), "a cached block's name is findable");
    }
  }
  QUIRE_CHECK(num_free == free_.size() && num_free == free_.to_vector().size());
  QUIRE_CHECK(num_cached == index_.size());
}

}  // namespace quire
