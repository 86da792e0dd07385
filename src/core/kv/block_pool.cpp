// States of a block, and the calls that lead to them:
//   free, empty    in the free queue, no block hash           at start; reset; evict
//   held, empty    references > 0, no block hash              allocate; evict
//   held, cached   references > 0, findable                   cache; touch of a free one
//   free, cached   in the free queue, findable until reuse    release of the last reference
//   reserved       neither free nor held                      set_aside, permanently
// allocate takes the head of the queue in either free state. release appends to the tail of a
// segment (free_queue.h). With LIFO, and for blocks without a hash under DecisionRules::unhashed_blocks_first, release inserts at
// the head. The null block is held permanently and has no references.
#include "core/kv/block_pool.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/rules.h"

namespace quire {

BlockPool::BlockPool(const BlockPoolOptions& options, EventSink* sink)
    : enable_caching_(options.enable_caching),
      lifo_(options.lifo),
      unhashed_first_(options.unhashed_first),
      segments_(options.enable_caching ? options.segments : SegmentLimits{}),
      free_(options.num_blocks, segments_),
      index_(options.num_blocks, options.max_hashes_per_block),
      ref_counts_(options.num_blocks, 0),
      was_reused_(segments_.reused > 0 ? options.num_blocks : 0, 0),
      retained_until_(segments_.retained > 0 ? options.num_blocks : 0, 0.0),
      sink_(sink),
      event_log_(options.enable_events, options.hash_bytes),
      residency_(options.num_blocks, options.residency_sample, options.residency_events) {
  QUIRE_CHECK(options.num_blocks >= 1, "the pool has at least the null block");
  QUIRE_CHECK(options.hash_bytes > 0 && options.hash_bytes <= sizeof(BlockHash::bytes), "a block hash has 1 to 32 bytes");
  free_.remove(kNullBlock);
  if (unhashed_first_) unhashed_.reserve(options.num_blocks);
}

double BlockPool::usage() const {
  const std::uint32_t total = num_blocks() - 1;
  QUIRE_CHECK(num_free_blocks() <= total, "the null block is not free");
  return total == 0 ? 0.0 : 1.0 - static_cast<double>(num_free_blocks()) / total;
}

std::vector<std::uint8_t> BlockPool::key_of(BlockId block) const {
  if (!index_.contains(block)) return {};
  const BlockKey name = index_.name_of(block);
  std::vector<std::uint8_t> key = event_log_.bytes_of(name.hashes);
  for (int shift = 24; shift >= 0; shift -= 8) key.push_back(static_cast<std::uint8_t>(name.group >> shift));
  return key;
}

bool BlockPool::forget(BlockId block) {
  residency_.on_evicted(block);
  if (!index_.contains(block)) return false;
  event_log_.removed(index_.name_of(block));
  index_.remove(block);
  block_watch_.on_hash_removed(block);
  return true;
}

BlockId BlockPool::allocate() {
  const BlockId block = free_.pop_front();
  if (sink_ != nullptr && index_.contains(block))
    sink_->on_event({.what = EventKind::block_evicted, .block = block, .name = index_.hash_of(block).bytes});
  // Without caching no block has a hash. The check would cost an index look-up per block.
  num_evicted_blocks_ += enable_caching_ && forget(block) ? 1 : 0;
  QUIRE_CHECK(ref_counts_[block.value] == 0);
  QUIRE_CHECK(block != kNullBlock, "the null block is not in the free queue");
  ref_counts_[block.value] = 1;
  if (!was_reused_.empty()) was_reused_[block.value] = 0;
  if (!retained_until_.empty()) retained_until_[block.value] = 0.0;
  residency_.on_allocated(block);
  block_watch_.on_allocated(block);
  return block;
}

void BlockPool::set_aside(std::uint32_t num_blocks) {
  QUIRE_CHECK(num_blocks <= num_free_blocks(), "there are enough free blocks to reserve");
  for (std::uint32_t i = 0; i < num_blocks; ++i) {
    set_aside_.push_back(free_.pop_front());
    QUIRE_CHECK(ref_counts_[set_aside_.back().value] == 0 && !index_.contains(set_aside_.back()),
                "a reserved block has no references and no hash");
  }
}

void BlockPool::touch(BlockId block) {
  if (block == kNullBlock) return;
  QUIRE_CHECK(block.value < num_blocks(), "the touched block is in the pool");
  QUIRE_CHECK(free_.contains(block) == (ref_counts_[block.value] == 0), "a block is either free or referenced");
  if (ref_counts_[block.value]++ == 0) free_.remove(block);
  if (!was_reused_.empty()) was_reused_[block.value] = 1;
  residency_.on_accessed(block);
  block_watch_.on_found(block, ref_counts_[block.value]);
}

bool BlockPool::drop_reference(BlockId block) {
  if (block == kNullBlock) return false;
  QUIRE_CHECK(block.value < num_blocks(), "the released block is in the pool");
  QUIRE_CHECK(ref_counts_[block.value] > 0, "a released block has a reference");
  --ref_counts_[block.value];
  block_watch_.on_released(block, ref_counts_[block.value]);
  return ref_counts_[block.value] == 0;
}

void BlockPool::release(BlockId block) {
  if (!drop_reference(block)) return;
  // Callers release a sequence's last block first, so by default the end of a prefix is reused before its beginning.
  if (unhashed_first_ ? !index_.contains(block) : lifo_)
    free_.push_front(block);
  else
    free_cached(block);
}

// A scan of prompts that are used once evicts no prefix that was reused, and none that a request asked to keep.
void BlockPool::free_cached(BlockId block) {
  if (!retained_until_.empty() && retained_until_[block.value] > retention_time_ && index_.contains(block))
    free_.push_back(block, FreeSegment::retained);
  else if (!was_reused_.empty() && was_reused_[block.value] != 0 && index_.contains(block))
    free_.push_back(block, FreeSegment::reused);
  else
    free_.push_back(block);
}

void BlockPool::retain(BlockId block, double until) {
  if (block == kNullBlock || retained_until_.empty()) return;
  QUIRE_CHECK(ref_count(block) > 0, "a retained block is held when its time is set");
  retained_until_[block.value] = std::max(retained_until_[block.value], until);
}

void BlockPool::end_retention(double now) {
  if (retained_until_.empty()) return;
  retention_time_ = std::max(retention_time_, now);
  while (free_.count(FreeSegment::retained) > 0) {
    const BlockId oldest = free_.oldest(FreeSegment::retained);
    if (retained_until_[oldest.value] > retention_time_) return;
    free_.remove(oldest);
    free_cached(oldest);
  }
}

void BlockPool::release(std::span<const BlockId> blocks) {
  if (!unhashed_first_) {
    for (const BlockId block : blocks) release(block);
    return;
  }
  // No request can look up a block without a hash, so these blocks are reused before cached blocks.
  unhashed_.clear();
  for (const BlockId block : blocks) {
    if (!drop_reference(block)) continue;
    if (index_.contains(block))
      free_cached(block);
    else
      unhashed_.push_back(block);
  }
  for (auto block = unhashed_.rbegin(); block != unhashed_.rend(); ++block) free_.push_front(*block);
}

void BlockPool::cache(BlockId block, const BlockKey& name, const BlockHash* parent, std::uint32_t num_tokens) {
  QUIRE_CHECK(block != kNullBlock && block.value < num_blocks(), "the cached block is in the pool and is not the null block");
  QUIRE_CHECK(ref_counts_[block.value] > 0, "only a referenced block is cached");
  index_.insert(name, block);
  block_watch_.on_hashed(block);
  if (sink_ != nullptr) {
    sink_->on_event({.what = EventKind::block_cached,
                     .total = num_tokens,
                     .block = block,
                     .name = name.hashes.back().bytes,
                     .parent = parent != nullptr ? parent->bytes : BlockHashBytes{}});
  }
}

void BlockPool::evict(BlockId block) {
  QUIRE_CHECK(block.value < num_blocks(), "the evicted block is in the pool");
  if (sink_ != nullptr && index_.contains(block))
    sink_->on_event({.what = EventKind::block_forgotten, .block = block, .name = index_.hash_of(block).bytes});
  forget(block);
}

bool BlockPool::reset() {
  if (num_free_blocks() + 1 != num_blocks()) return false;
  QUIRE_CHECK(set_aside_.empty(), "no block is reserved when all blocks are free");
  index_.clear();
  free_.merge_segments();
  was_reused_.assign(was_reused_.size(), 0);
  retained_until_.assign(retained_until_.size(), 0.0);
  if (sink_ != nullptr) sink_->on_event({.what = EventKind::cache_reset});
  residency_.reset();
  block_watch_.on_all_hashes_removed();
  event_log_.cleared();
  return true;
}

const std::vector<WatchedBlock>& BlockPool::watch() {
  QUIRE_CHECK(!block_watch_.is_on() || block_watch_.all().size() == num_blocks(), "the watched blocks are the blocks of the pool");
  if (block_watch_.is_on()) return block_watch_.all();
  std::vector<WatchedBlock> blocks(num_blocks());
  for (std::uint32_t i = 0; i < num_blocks(); ++i) {
    blocks[i].num_holders = BlockWatch::saturated(ref_counts_[i]);
    if (index_.contains(BlockId{i})) blocks[i].flags = WatchedBlock::kCached;
  }
  block_watch_.begin(std::move(blocks));
  return block_watch_.all();
}

void BlockPool::check_invariants(std::span<const std::uint32_t> holders) const {
  check_rules(broken_rule(holders));
  check_lists();
}

void BlockPool::check_lists() const {
  free_.check_invariants();
  index_.check_invariants();
}

const Rule* BlockPool::broken_rule(std::span<const std::uint32_t> holders) const {
  QUIRE_CHECK(holders.size() == ref_counts_.size(), "there is a number of holders for each block");
  QUIRE_RULE(ref_counts_[0] == 0 && !free_.contains(kNullBlock) && !index_.contains(kNullBlock),
             "the null block has no references, is not free and is not cached");
  std::uint32_t num_free = 0;
  std::uint32_t num_cached = 0;
  for (std::uint32_t i = 1; i < num_blocks(); ++i) {
    const BlockId block{i};
    const bool aside = std::ranges::find(set_aside_, block) != set_aside_.end();
    QUIRE_RULE(ref_counts_[i] == holders[i], "the reference count equals the number of holders");
    QUIRE_RULE(free_.contains(block) == (ref_counts_[i] == 0 && !aside),
               "a block is free if and only if it has no references and is not reserved");
    num_free += free_.contains(block) ? 1 : 0;
    if (index_.contains(block)) {
      ++num_cached;
      const auto found = index_.find(index_.name_of(block));
      QUIRE_RULE(found && index_.hash_of(*found) == index_.hash_of(block), "a cached block is found by its hash");
    }
  }
  QUIRE_RULE(num_free == free_.size() && num_free == free_.to_vector().size(),
             "the number of free blocks equals the size of the free queue");
  QUIRE_RULE(num_cached == index_.size(), "the number of cached blocks equals the size of the index");
  return nullptr;
}

}  // namespace quire
