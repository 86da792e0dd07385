#pragma once
// The block tables of all cache groups, updated by the plan's deltas (vLLM V1's MultiGroupBlockTable). Memory is allocated once.
#include <cstdint>
#include <span>
#include <vector>

#include "quire/base/ids.h"
#include "quire/base/kv_layout.h"
#include "quire/base/plan.h"
#include "runtime/memory/block_table.h"

namespace quire {

// Owned by the worker. The thread that leads the step changes it between passes; all threads read it during passes.
class BlockTables {
 public:
  // Creates one table per group, in the order of `groups`.
  explicit BlockTables(std::span<const BlockTableLimits> groups);
  // Creates the tables for a KV layout. `num_encoder_positions`: length of the encoder output for cross attention, if a group has cross
  // attention.
  BlockTables(const KvLayout& layout, std::uint32_t num_slots, std::uint32_t max_model_len, std::uint32_t num_encoder_positions = 0);

  // apply(), release(), move() and swap() change the staged rows. apply() takes the delta of one group. In every group, release() clears a
  // batch row, move() moves it to another row, and swap() exchanges two rows. An empty row may be released.
  void apply(const BlockTableDelta& delta);
  void release(Slot slot);
  void move(Slot from, Slot to);
  void swap(Slot a, Slot b);
  // Makes the changes of the first `num_slots` rows visible. Called once per step, after its deltas.
  void commit(std::uint32_t num_slots);

  [[nodiscard]] std::uint32_t num_groups() const { return static_cast<std::uint32_t>(tables_.size()); }
  // row() and kv_slot() read committed rows; see BlockTable::row() and BlockTable::slot().
  [[nodiscard]] std::span<const BlockId> row(std::uint32_t group, Slot slot) const { return table(group).row(slot.value); }
  [[nodiscard]] std::int64_t kv_slot(std::uint32_t group, Slot slot, std::uint32_t position) const {
    return table(group).slot(slot.value, position);
  }
  [[nodiscard]] const BlockTable& table(std::uint32_t group) const;

 private:
  std::vector<BlockTable> tables_;
};

}  // namespace quire
