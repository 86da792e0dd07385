#pragma once
// The block tables of all cache groups, fed by the plan's deltas (vLLM V1's MultiGroupBlockTable). Memory is taken once.
#include <cstdint>
#include <span>
#include <vector>

#include "quire/base/ids.h"
#include "quire/base/kv_layout.h"
#include "quire/base/plan.h"
#include "runtime/memory/block_table.h"

namespace quire {

// Owned by the worker. Changed between passes by the thread that leads the step, read during them by all.
class BlockTables {
 public:
  // One table per group, in their order.
  explicit BlockTables(std::span<const BlockTableLimits> groups);
  // num_encoder_positions: of what cross attention sees, where there is such a group.
  BlockTables(const KvLayout& layout, std::uint32_t num_slots, std::uint32_t max_model_len, std::uint32_t num_encoder_positions = 0);

  // Staged: a delta of a group, and in every group the end of a slot's table, its move to another slot, and the change of two slots'
  // places. Releasing an empty table is fine.
  void apply(const BlockTableDelta& delta);
  void release(Slot slot);
  void move(Slot from, Slot to);
  void swap(Slot a, Slot b);
  // Once per step, after its deltas: those of the first so many slots.
  void commit(std::uint32_t num_slots);

  [[nodiscard]] std::uint32_t num_groups() const { return static_cast<std::uint32_t>(tables_.size()); }
  // Committed; as BlockTable::row and BlockTable::slot.
  [[nodiscard]] std::span<const BlockId> row(std::uint32_t group, Slot slot) const { return table(group).row(slot.value); }
  [[nodiscard]] std::int64_t kv_slot(std::uint32_t group, Slot slot, std::uint32_t position) const {
    return table(group).slot(slot.value, position);
  }
  [[nodiscard]] const BlockTable& table(std::uint32_t group) const;

 private:
  std::vector<BlockTable> tables_;
};

}  // namespace quire
