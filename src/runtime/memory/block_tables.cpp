#include "runtime/memory/block_tables.h"

#include <algorithm>

#include "base/check.h"

namespace quire {

BlockTables::BlockTables(const BlockTableLimits& limits)
    : limits_(limits), blocks_(std::size_t{limits.num_slots} * limits.max_blocks_per_slot), counts_(limits.num_slots) {
  QUIRE_CHECK(limits.block_size > 0, "blocks of no tokens");
}

void BlockTables::apply(const BlockTableDelta& delta) {
  QUIRE_CHECK(delta.slot.value < limits_.num_slots, "no such slot");
  QUIRE_CHECK(delta.group == 0, "these tables have one cache group");
  for (const BlockId block : delta.blocks) QUIRE_CHECK(block.value < limits_.num_blocks, "no such block");
  std::uint32_t& count = counts_[delta.slot.value];
  BlockId* row = blocks_.data() + start(delta.slot);
  if (delta.update == TableUpdate::replace_one) {
    QUIRE_CHECK(delta.blocks.size() == 1 && delta.index < count, "replaces an entry that is not there");
    row[delta.index] = delta.blocks[0];
    return;
  }
  if (delta.update == TableUpdate::replace_all) count = 0;
  QUIRE_CHECK(delta.blocks.size() <= limits_.max_blocks_per_slot - count, "block table overflows");
  std::ranges::copy(delta.blocks, row + count);
  count += static_cast<std::uint32_t>(delta.blocks.size());
}

void BlockTables::release(Slot slot) {
  QUIRE_CHECK(slot.value < limits_.num_slots, "no such slot");
  counts_[slot.value] = 0;
}

std::span<const BlockId> BlockTables::row(Slot slot) const {
  QUIRE_CHECK(slot.value < limits_.num_slots, "no such slot");
  return {blocks_.data() + start(slot), counts_[slot.value]};
}

std::uint64_t BlockTables::kv_slot(Slot slot, std::uint32_t position) const {
  const auto blocks = row(slot);
  const std::uint32_t index = position / limits_.block_size;
  QUIRE_CHECK(index < blocks.size(), "position beyond the block table");
  return std::uint64_t{blocks[index].value} * limits_.block_size + position % limits_.block_size;
}

}  // namespace quire
