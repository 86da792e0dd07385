// States of a block, and who moves it:
//   free, empty    in the free queue, no name                 at start; reset; evict
//   held, empty    references > 0, no name                    allocate; evict
//   held, cached   references > 0, findable                   cache; touch of a free one
//   free, cached   in the free queue, findable until reuse    release of the last reference
//   set aside      neither                                    set_aside, for ever
// allocate takes the head of the queue in either free state; release appends to its tail (LIFO, and without a name under
// DecisionRules::unnamed_blocks_first: to its head). The null block is held for
// ever and has no references.
#include "core/kv/block_pool.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/rules.h"

namespace quire {

BlockPool::BlockPool(const BlockPoolOptions& options, EventSink* sink)
    : enable_caching_(options.enable_caching),
      lifo_(options.lifo),
      unnamed_first_(options.unnamed_first),
      free_(options.num_blocks),
      index_(options.num_blocks, options.max_hashes_per_block),
      ref_counts_(options.num_blocks, 0),
      sink_(sink),
      event_log_(options.enable_events, options.hash_bytes),
      residency_(options.num_blocks, options.residency_sample, options.residency_events) {
  QUIRE_CHECK(options.num_blocks >= 1, "a pool has the null block");
  QUIRE_CHECK(options.hash_bytes > 0 && options.hash_bytes <= sizeof(BlockHash::bytes), "a name has bytes");
  free_.remove(kNullBlock);
  if (unnamed_first_) unnamed_.reserve(options.num_blocks);
}

double BlockPool::usage() const {
  const std::uint32_t total = num_blocks() - 1;
  QUIRE_CHECK(num_free_blocks() <= total, "the null block is never free");
  return total == 0 ? 0.0 : 1.0 - static_cast<double>(num_free_blocks()) / total;
}

std::vector<std::uint8_t> BlockPool::key_of(BlockId block) const {
  if (!index_.contains(block)) return {};
  const BlockName name = index_.name_of(block);
  std::vector<std::uint8_t> key = event_log_.bytes_of(name.hashes);
  for (int shift = 24; shift >= 0; shift -= 8) key.push_back(static_cast<std::uint8_t>(name.group >> shift));
  return key;
}

bool BlockPool::forget(BlockId block) {
  residency_.on_evicted(block);
  if (!index_.contains(block)) return false;
  event_log_.removed(index_.name_of(block));
  index_.remove(block);
  shown_.on_forgotten(block);
  return true;
}

BlockId BlockPool::allocate() {
  const BlockId block = free_.pop_front();
  if (sink_ != nullptr && index_.contains(block))
    sink_->on_event({.what = EventKind::block_evicted, .block = block, .name = index_.hash_of(block).bytes});
  // Without caching nothing has a name, and asking would cost a look into the index for each block.
  num_evicted_blocks_ += enable_caching_ && forget(block) ? 1 : 0;
  QUIRE_CHECK(ref_counts_[block.value] == 0);
  QUIRE_CHECK(block != kNullBlock, "the null block is not among the free ones");
  ref_counts_[block.value] = 1;
  residency_.on_allocated(block);
  shown_.on_allocated(block);
  return block;
}

void BlockPool::set_aside(std::uint32_t num_blocks) {
  QUIRE_CHECK(num_blocks <= num_free_blocks(), "blocks are set aside at start, when they are there");
  for (std::uint32_t i = 0; i < num_blocks; ++i) {
    set_aside_.push_back(free_.pop_front());
    QUIRE_CHECK(ref_counts_[set_aside_.back().value] == 0 && !index_.contains(set_aside_.back()),
                "nobody has used a block that is set aside");
  }
}

void BlockPool::touch(BlockId block) {
  if (block == kNullBlock) return;
  QUIRE_CHECK(block.value < num_blocks(), "a block of the pool is touched");
  QUIRE_CHECK(free_.contains(block) == (ref_counts_[block.value] == 0), "a block is free or held");
  if (ref_counts_[block.value]++ == 0) free_.remove(block);
  residency_.on_accessed(block);
  shown_.on_found(block, ref_counts_[block.value]);
}

bool BlockPool::drop_reference(BlockId block) {
  if (block == kNullBlock) return false;
  QUIRE_CHECK(block.value < num_blocks(), "a block of the pool is released");
  QUIRE_CHECK(ref_counts_[block.value] > 0, "released more often than taken");
  --ref_counts_[block.value];
  shown_.on_released(block, ref_counts_[block.value]);
  return ref_counts_[block.value] == 0;
}

void BlockPool::release(BlockId block) {
  if (!drop_reference(block)) return;
  // Who frees a sequence gives its last block first, so the end of a prefix is taken for new content before its beginning.
  if (unnamed_first_ ? !index_.contains(block) : lifo_)
    free_.push_front(block);
  else
    free_.push_back(block);
}

void BlockPool::release(std::span<const BlockId> blocks) {
  if (!unnamed_first_) {
    for (const BlockId block : blocks) release(block);
    return;
  }
  // Nobody will ever look for what has no name, so it need not be kept as long as what has one.
  unnamed_.clear();
  for (const BlockId block : blocks) {
    if (!drop_reference(block)) continue;
    if (index_.contains(block))
      free_.push_back(block);
    else
      unnamed_.push_back(block);
  }
  for (auto block = unnamed_.rbegin(); block != unnamed_.rend(); ++block) free_.push_front(*block);
}

void BlockPool::cache(BlockId block, const BlockName& name, const BlockHash* parent, std::uint32_t num_tokens) {
  QUIRE_CHECK(block != kNullBlock && block.value < num_blocks(), "a block of the pool has a name");
  QUIRE_CHECK(ref_counts_[block.value] > 0, "only a held block can be cached");
  index_.insert(name, block);
  shown_.on_named(block);
  if (sink_ != nullptr) {
    sink_->on_event({.what = EventKind::block_cached,
                     .total = num_tokens,
                     .block = block,
                     .name = name.hashes.back().bytes,
                     .parent = parent != nullptr ? parent->bytes : NameBytes{}});
  }
}

void BlockPool::evict(BlockId block) {
  QUIRE_CHECK(block.value < num_blocks(), "no such block");
  if (sink_ != nullptr && index_.contains(block))
    sink_->on_event({.what = EventKind::block_forgotten, .block = block, .name = index_.hash_of(block).bytes});
  forget(block);
}

bool BlockPool::reset() {
  if (num_free_blocks() + 1 != num_blocks()) return false;
  QUIRE_CHECK(set_aside_.empty(), "blocks that are set aside are not free");
  index_.clear();
  if (sink_ != nullptr) sink_->on_event({.what = EventKind::cache_reset});
  residency_.reset();
  shown_.on_all_forgotten();
  event_log_.cleared();
  return true;
}

const std::vector<WatchedBlock>& BlockPool::watch() {
  QUIRE_CHECK(!shown_.is_on() || shown_.all().size() == num_blocks(), "each block of the pool is shown");
  if (shown_.is_on()) return shown_.all();
  std::vector<WatchedBlock> blocks(num_blocks());
  for (std::uint32_t i = 0; i < num_blocks(); ++i) {
    blocks[i].num_holders = ShownBlocks::saturated(ref_counts_[i]);
    if (index_.contains(BlockId{i})) blocks[i].flags = WatchedBlock::kCached;
  }
  shown_.begin(std::move(blocks));
  return shown_.all();
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
  QUIRE_CHECK(holders.size() == ref_counts_.size(), "a count of holders for each block");
  QUIRE_RULE(ref_counts_[0] == 0 && !free_.contains(kNullBlock) && !index_.contains(kNullBlock), "the null block is out of reach");
  std::uint32_t num_free = 0;
  std::uint32_t num_cached = 0;
  for (std::uint32_t i = 1; i < num_blocks(); ++i) {
    const BlockId block{i};
    const bool aside = std::ranges::find(set_aside_, block) != set_aside_.end();
    QUIRE_RULE(ref_counts_[i] == holders[i], "a reference per holder");
    QUIRE_RULE(free_.contains(block) == (ref_counts_[i] == 0 && !aside), "free, held or set aside, and only one of them");
    num_free += free_.contains(block) ? 1 : 0;
    if (index_.contains(block)) {
      ++num_cached;
      const auto found = index_.find(index_.name_of(block));
      QUIRE_RULE(found && index_.hash_of(*found) == index_.hash_of(block), "a cached block's name is findable");
    }
  }
  QUIRE_RULE(num_free == free_.size() && num_free == free_.to_vector().size(), "free blocks are counted");
  QUIRE_RULE(num_cached == index_.size(), "blocks with a name are counted");
  return nullptr;
}

}  // namespace quire
