#include "runtime/memory/block_tables.h"

#include "base/check.h"

namespace quire {

BlockTables::BlockTables(std::span<const BlockTableLimits> groups) {
  for (const BlockTableLimits& limits : groups) tables_.emplace_back(limits);
}

BlockTables::BlockTables(const KvLayout& layout, std::uint32_t num_slots, std::uint32_t max_model_len,
                         std::uint32_t num_encoder_positions) {
  for (const KvGroupLayout& group : layout.groups) {
    tables_.emplace_back(BlockTableLimits{.num_rows = num_slots,
                                          .max_model_len = group.keeps_encoder_output() ? num_encoder_positions : max_model_len,
                                          .num_blocks = layout.num_blocks,
                                          .block_size = group.block_size,
                                          .kernel_block_size = group.kernel_block_size,
                                          .num_extra_blocks = group.num_spare_blocks()});
  }
}

const BlockTable& BlockTables::table(std::uint32_t group) const {
  QUIRE_CHECK(group < tables_.size(), "the cache group exists");
  return tables_[group];
}

// Stages the delta of one group. A delta that does not fit ends the program, because the core planned the delta for this table.
void BlockTables::apply(const BlockTableDelta& delta) {
  QUIRE_CHECK(delta.group < tables_.size(), "the cache group exists");
  BlockTable& table = tables_[delta.group];
  switch (delta.update) {
    case TableUpdate::append:
      return table.append(delta.slot.value, delta.blocks);
    case TableUpdate::replace_all:
      return table.add(delta.slot.value, delta.blocks);
    case TableUpdate::replace_one:
      QUIRE_CHECK(delta.blocks.size() == 1, "an entry is replaced by exactly one block");
      return table.replace(delta.slot.value, delta.index, delta.blocks[0]);
  }
}

void BlockTables::release(Slot slot) {
  for (BlockTable& table : tables_) table.clear(slot.value);
}

void BlockTables::move(Slot from, Slot to) {
  for (BlockTable& table : tables_) table.move(from.value, to.value);
}

void BlockTables::swap(Slot a, Slot b) {
  for (BlockTable& table : tables_) table.swap(a.value, b.value);
}

void BlockTables::commit(std::uint32_t num_slots) {
  for (BlockTable& table : tables_) table.commit(num_slots);
}

}  // namespace quire
