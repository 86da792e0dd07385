#pragma once
// The physical blocks: who holds them, in which order the free ones will be reused, and what they are known to contain.
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/kv/block_hash.h"
#include "core/kv/event_sink.h"
#include "core/kv/free_queue.h"
#include "core/kv/prefix_index.h"
#include "quire/ids.h"

namespace quire {

class BlockPool {
 public:
  // num_blocks counts the null block, which is taken at once and never given back. `events` may be null.
  BlockPool(std::uint32_t num_blocks, EventSink* events);

  [[nodiscard]] std::uint32_t num_blocks() const { return static_cast<std::uint32_t>(ref_counts_.size()); }
  [[nodiscard]] std::uint32_t num_free_blocks() const { return free_.size(); }
  [[nodiscard]] std::uint64_t num_evicted_blocks() const { return num_evicted_blocks_; }
  [[nodiscard]] std::uint32_t ref_count(BlockId block) const { return ref_counts_[block.value]; }
  [[nodiscard]] const FreeQueue& free_queue() const { return free_; }
  [[nodiscard]] const PrefixIndex& index() const { return index_; }

  // The first block cached under this name, held or free.
  [[nodiscard]] std::optional<BlockId> find_cached(const BlockHash& hash) const { return index_.find(hash); }

  // Takes the least recently used free block, with one reference; what it was known to contain is forgotten. There must be one.
  BlockId allocate();
  // One more reference; a free block leaves the free queue.
  void touch(BlockId block);
  // One reference less for each, in this order; those without any go to the end of the free queue and stay findable.
  void release(BlockId block);
  // A held block becomes findable.
  void cache(BlockId block, const BlockHash& hash);
  // Forgets all contents. False, and nothing happens, while any block is held.
  bool reset();

  // `holders[b]` references to block b are all there are.
  void check_invariants(std::span<const std::uint32_t> holders) const;

 private:
  FreeQueue free_;
  PrefixIndex index_;
  std::vector<std::uint32_t> ref_counts_;
  EventSink* events_;
  std::uint64_t num_evicted_blocks_ = 0;
};

}  // namespace quire
