#pragma once
// The physical blocks: who holds them, in which order the free ones will be reused, and what they are known to contain. The rules are
// those of vLLM V1's BlockPool (v0.19.0).
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/rules.h"
#include "core/kv/free_queue.h"
#include "core/kv/kv_event_log.h"
#include "core/kv/prefix_index.h"
#include "core/kv/residency.h"
#include "core/kv/shown_blocks.h"
#include "quire/base/events.h"
#include "quire/base/ids.h"
#include "quire/hash_function.h"
#include "quire/watch.h"

namespace quire {

struct BlockPoolOptions {
  std::uint32_t num_blocks = 0;            // with the null block, which is taken at once and never given back
  std::uint32_t max_hashes_per_block = 1;  // where a group's blocks are larger than what is hashed
  std::uint32_t hash_bytes = 32;           // meaningful bytes of a hash
  bool enable_caching = true;
  bool enable_events = false;
  double residency_sample = 0.0;  // share of allocations whose residency is measured
  bool residency_events = true;   // somebody takes what is measured
  bool unnamed_first = false;     // freed blocks without a name are reused first (DecisionRules::unnamed_blocks_first)
  bool lifo = false;              // freed blocks are reused last in, first out, instead of least recently used first
};

// States of a block are in block_pool.cpp. Costs:
//   allocate, touch, release    O(1), no memory is allocated; in every step
//   cache, find_cached          one look into a chain of the index
//   reset, check_invariants     all blocks
// Called by the group managers on the core's thread. It knows no requests: who holds a block is a number.
class BlockPool {
 public:
  // `sink` may be null.
  BlockPool(const BlockPoolOptions& options, EventSink* sink);
  BlockPool(std::uint32_t num_blocks, EventSink* sink) : BlockPool(BlockPoolOptions{.num_blocks = num_blocks}, sink) {}

  [[nodiscard]] std::uint32_t num_blocks() const { return static_cast<std::uint32_t>(ref_counts_.size()); }
  [[nodiscard]] std::uint32_t num_free_blocks() const { return free_.size(); }
  [[nodiscard]] std::uint64_t num_evicted_blocks() const { return num_evicted_blocks_; }
  // 0 for the null block, whoever holds it.
  [[nodiscard]] std::uint32_t ref_count(BlockId block) const {
    QUIRE_CHECK(block.value < ref_counts_.size(), "asked about a block of the pool");
    return ref_counts_[block.value];
  }
  [[nodiscard]] const FreeQueue& free_queue() const { return free_; }
  [[nodiscard]] const PrefixIndex& index() const { return index_; }
  // 1 - free / all blocks but the null one; blocks set aside count as used.
  [[nodiscard]] double usage() const;
  // The name's bytes with the group's four, as vLLM keys its cache; empty: no name.
  [[nodiscard]] std::vector<std::uint8_t> key_of(BlockId block) const;

  // The first block cached under this name, held or free.
  [[nodiscard]] std::optional<BlockId> find_cached(const BlockName& name) const { return index_.find(name); }

  // Takes the block at the front of the free queue, with one reference; what it was known to contain is forgotten. There must be one.
  BlockId allocate();
  // Takes blocks out of use for good, from the front of the free queue, without a reference.
  void set_aside(std::uint32_t num_blocks);
  // One more reference; a free block is removed from the free queue.
  void touch(BlockId block);
  // One reference less; without any it goes to the free queue and stays findable.
  void release(BlockId block);
  // One reference less of each. Of those that become free the first one is to be reused first.
  void release(std::span<const BlockId> blocks);
  // A held block becomes findable.
  void cache(BlockId block, const BlockName& name, const BlockHash* parent = nullptr,
             std::uint32_t num_tokens = 0);  // for events: the name before it, and the tokens up to its end
  // The block's name, if it has one, is forgotten; who holds it stays.
  void evict(BlockId block);
  // Forgets all contents. False, and nothing happens, while any block is held or set aside.
  bool reset();

  KvEventLog& event_log() { return event_log_; }
  KvResidency& residency() { return residency_; }
  [[nodiscard]] const KvResidency& residency() const { return residency_; }
  // What a watcher is shown, but for owners and transfers: kept from the first call of watch() on, until shown().end().
  ShownBlocks& shown() { return shown_; }
  const std::vector<WatchedBlock>& watch();

  // `holders[b]` references to block b are all there are.
  void check_invariants(std::span<const std::uint32_t> holders) const;
  // That the lists which the rules are read from are whole: links of the free queue, chains of the index.
  void check_lists() const;
  // The first rule that does not hold; null: all do.
  [[nodiscard]] const Rule* broken_rule(std::span<const std::uint32_t> holders) const;

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
    [[maybe_unused]] auto& [enable_caching, lifo, unnamed_first, free, index, ref_counts, set_aside, sink, event_log, residency, shown,
                            num_evicted, unnamed] = self;
    const std::size_t num_blocks = ref_counts.size();
    form(free, index, ref_counts, event_log, residency, num_evicted);
    // Which blocks are set aside follows from the configuration; what is shown is for who watches.
    form.expect(ref_counts.size() == num_blocks, "each block has a count of references");
  }

 private:
  bool forget(BlockId block);
  // True: that was the last reference.
  bool drop_reference(BlockId block);

  bool enable_caching_;
  bool lifo_;
  bool unnamed_first_;
  FreeQueue free_;
  PrefixIndex index_;
  // By block. A reference is one place in one sequence's list: a block that two sequences share has two.
  std::vector<std::uint32_t> ref_counts_;
  // Neither free nor held, for ever; few.
  std::vector<BlockId> set_aside_;
  EventSink* sink_;
  KvEventLog event_log_;
  KvResidency residency_;
  ShownBlocks shown_;
  std::uint64_t num_evicted_blocks_ = 0;
  std::vector<BlockId> unnamed_;  // within release()
};

}  // namespace quire
