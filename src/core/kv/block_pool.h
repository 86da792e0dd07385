#pragma once
// Manages the physical blocks: which blocks are held, in which order free blocks are reused, and which content is cached in them. The rules
// are vLLM V1's BlockPool (v0.19.0).
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/rules.h"
#include "core/kv/block_watch.h"
#include "core/kv/free_queue.h"
#include "core/kv/kv_event_log.h"
#include "core/kv/prefix_index.h"
#include "core/kv/residency.h"
#include "quire/base/events.h"
#include "quire/base/ids.h"
#include "quire/hash_function.h"
#include "quire/watch.h"

namespace quire {

struct BlockPoolOptions {
  std::uint32_t num_blocks = 0;            // includes the null block, which is never free
  std::uint32_t max_hashes_per_block = 1;  // more than 1 if a group's blocks are larger than the hash block size
  std::uint32_t hash_bytes = 32;           // meaningful bytes of a block hash
  bool enable_caching = true;
  bool enable_events = false;
  double residency_sample = 0.0;  // share of allocated blocks whose residency is measured
  bool residency_events = true;   // queue an event per sampled block; set to false if no caller takes the events
  bool unhashed_first = false;    // freed blocks without a block hash are reused first (DecisionRules::unhashed_blocks_first)
  SegmentLimits segments = {};    // maximum numbers of free blocks that are evicted after all others (free_queue.h)
  bool lifo = false;              // freed blocks are reused last in, first out, instead of least recently used first
};

// block_pool.cpp lists the states of a block. Costs:
//   allocate, touch, release    O(1), allocates no memory; called in every step
//   cache, find_cached          one look-up in a chain of the index
//   reset, check_invariants     visits all blocks
// Belongs to the core's thread; the group managers call it. The pool does not know requests: it only counts the references to a block.
class BlockPool {
 public:
  // `sink` may be null.
  BlockPool(const BlockPoolOptions& options, EventSink* sink);
  BlockPool(std::uint32_t num_blocks, EventSink* sink) : BlockPool(BlockPoolOptions{.num_blocks = num_blocks}, sink) {}

  [[nodiscard]] std::uint32_t num_blocks() const { return static_cast<std::uint32_t>(ref_counts_.size()); }
  [[nodiscard]] std::uint32_t num_free_blocks() const { return free_.size(); }
  [[nodiscard]] std::uint64_t num_evicted_blocks() const { return num_evicted_blocks_; }
  // Returns the number of references; always 0 for the null block, even if sequences hold it.
  [[nodiscard]] std::uint32_t ref_count(BlockId block) const {
    QUIRE_CHECK(block.value < ref_counts_.size(), "the queried block is in the pool");
    return ref_counts_[block.value];
  }
  [[nodiscard]] const FreeQueue& free_queue() const { return free_; }
  [[nodiscard]] const PrefixIndex& index() const { return index_; }
  // Returns the share of blocks that are not free, without the null block. Reserved blocks count as used.
  [[nodiscard]] double usage() const;
  // Returns the key in vLLM's cache: the block hash, then the group as four big-endian bytes. Empty if the block has no hash.
  [[nodiscard]] std::vector<std::uint8_t> key_of(BlockId block) const;

  // Returns the block that was cached first under this key, held or free.
  [[nodiscard]] std::optional<BlockId> find_cached(const BlockKey& name) const { return index_.find(name); }

  // Takes the block at the front of the free queue, adds one reference and removes its hash. A free block must exist.
  BlockId allocate();
  // Reserves blocks at the front of the free queue permanently. Reserved blocks have no references.
  void set_aside(std::uint32_t num_blocks);
  // Adds a reference. A free block leaves the free queue.
  void touch(BlockId block);
  // Keeps the held block after its release until this time, in seconds, in the segment FreeSegment::retained. A block that is already
  // retained longer does not change. Has no effect if the segment has a limit of 0.
  void retain(BlockId block, double until);
  // Blocks that are retained until `now` or earlier no longer are, if they are the oldest retained blocks. Called once per step.
  void end_retention(double now);
  // Drops a reference. A block without references enters the free queue; its hash stays in the index.
  void release(BlockId block);
  // Drops one reference of each block. In the default order, the first of these blocks that becomes free is reused first.
  void release(std::span<const BlockId> blocks);
  // Adds a held block to the index. `parent` (hash of the previous block) and `num_tokens` (tokens up to the end of this block) are for
  // events.
  void cache(BlockId block, const BlockKey& name, const BlockHash* parent = nullptr, std::uint32_t num_tokens = 0);
  // Removes the block's hash, if it has one. Its references do not change.
  void evict(BlockId block);
  // Removes all hashes. Returns false and changes nothing while any block is held or reserved.
  bool reset();

  KvEventLog& event_log() { return event_log_; }
  KvResidency& residency() { return residency_; }
  [[nodiscard]] const KvResidency& residency() const { return residency_; }
  // Per-block data for a watcher, without owners and transfers. Kept up to date from the first watch() until block_watch().end().
  BlockWatch& block_watch() { return block_watch_; }
  const std::vector<WatchedBlock>& watch();

  // Stops the program if a rule is violated. `holders[b]` must be the number of all references to block b.
  void check_invariants(std::span<const std::uint32_t> holders) const;
  // Stops the program if links of the free queue or chains of the index are broken.
  void check_lists() const;
  // Returns the first violated rule, or null if all hold.
  [[nodiscard]] const Rule* broken_rule(std::span<const std::uint32_t> holders) const;

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [enable_caching, lifo, unhashed_first, segments, free, index, ref_counts, was_reused, retained_until,
                            retention_time, set_aside, sink, event_log, residency, block_watch, num_evicted, unhashed] = self;
    const std::size_t num_blocks = ref_counts.size(), num_flags = was_reused.size(), num_times = retained_until.size();
    form(free, index, ref_counts, was_reused, retained_until, retention_time, event_log, residency, num_evicted);
    // The configuration decides which blocks are reserved, so set_aside is not saved. Data for watchers is not part of a checkpoint.
    form.expect(ref_counts.size() == num_blocks, "there is a reference count for each block");
    form.expect(was_reused.size() == num_flags && retained_until.size() == num_times, "blocks are kept as configured");
  }

 private:
  bool forget(BlockId block);
  // Puts a block without references into its segment of the free queue.
  void free_cached(BlockId block);
  // Returns true if this was the last reference.
  bool drop_reference(BlockId block);

  bool enable_caching_;
  bool lifo_;
  bool unhashed_first_;
  SegmentLimits segments_;
  FreeQueue free_;
  PrefixIndex index_;
  // Indexed by block id. Each entry in a sequence's block list is one reference, so a block that two sequences share has two.
  std::vector<std::uint32_t> ref_counts_;
  std::vector<std::uint8_t> was_reused_;  // indexed by block id: a request found the cached content; empty if that segment has no room
  std::vector<double> retained_until_;    // indexed by block id, in seconds; empty if that segment has no room
  double retention_time_ = 0.0;           // the largest `now` of end_retention()
  // Reserved blocks: permanently neither free nor held. A short list.
  std::vector<BlockId> set_aside_;
  EventSink* sink_;
  KvEventLog event_log_;
  KvResidency residency_;
  BlockWatch block_watch_;
  std::uint64_t num_evicted_blocks_ = 0;
  std::vector<BlockId> unhashed_;  // scratch of release()
};

}  // namespace quire
