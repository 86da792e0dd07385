#pragma once
// The block table of every slot of the persistent batch: position p of a slot lies in block row(slot)[p / block_size].
//
// Fed by the plan's deltas; memory is taken once. A delta that does not fit (slot or index out of range, more than max_blocks_per_slot, a
// cache group other than 0) is a broken invariant: the core has planned what the worker was built for.
#include <cstdint>
#include <span>
#include <vector>

#include "quire/ids.h"
#include "quire/plan.h"

namespace quire {

struct BlockTableLimits {
  std::uint32_t num_slots = 0;            // max_num_seqs
  std::uint32_t max_blocks_per_slot = 0;  // max_model_len in blocks, rounded up
  std::uint32_t block_size = 0;           // tokens
  std::uint32_t num_blocks = 0;           // of the cache: ids at or above it are refused
};

class BlockTables {
 public:
  explicit BlockTables(const BlockTableLimits& limits);

  void apply(const BlockTableDelta& delta);
  // The slot's table is empty afterwards; releasing an empty table is fine.
  void release(Slot slot);

  // Valid until the slot's next delta or release.
  [[nodiscard]] std::span<const BlockId> row(Slot slot) const;
  // Where a token's keys and values lie: block * block_size + offset in the block. The position lies in a block of the table.
  [[nodiscard]] std::uint64_t kv_slot(Slot slot, std::uint32_t position) const;

  [[nodiscard]] const BlockTableLimits& limits() const { return limits_; }

 private:
  [[nodiscard]] std::size_t start(Slot slot) const { return std::size_t{slot.value} * limits_.max_blocks_per_slot; }

  BlockTableLimits limits_;
  std::vector<BlockId> blocks_;        // [slot][max_blocks_per_slot]
  std::vector<std::uint32_t> counts_;  // per slot
};

}  // namespace quire
