// The block table of one cache group (vLLM V1's BlockTable). Called by the worker on the thread that leads a step. Deltas are staged,
// commit() copies the changes, and kernels read committed rows on all threads of the pool. Memory is allocated only in the constructor.
#include "runtime/memory/block_table.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace quire {

BlockTable::BlockTable(const BlockTableLimits& limits) : limits_(limits), changed_(limits.num_rows) {
  const ContextParallel& parallel = limits.parallel;
  QUIRE_CHECK(limits.kernel_block_size > 0 && limits.block_size > 0, "block sizes are at least 1 token");
  QUIRE_CHECK(limits.block_size % limits.kernel_block_size == 0, "a block is a whole number of kernel blocks");
  QUIRE_CHECK(parallel.dcp_rank < parallel.dcp_world_size && parallel.pcp_rank < parallel.pcp_world_size,
              "each rank is less than its world size");
  QUIRE_CHECK(parallel.interleave_size > 0 && limits.kernel_block_size % parallel.interleave_size == 0,
              "the kernel block size is a multiple of the interleave size");
  kernel_blocks_per_block_ = limits.block_size / limits.kernel_block_size;
  const std::uint64_t tokens_per_block = std::uint64_t{limits.block_size} * parallel.world_size();
  // Blocks for max_model_len tokens, rounded up, plus num_extra_blocks. The core never gives more blocks to a row.
  const std::uint64_t num_blocks = (limits.max_model_len + tokens_per_block - 1) / tokens_per_block + limits.num_extra_blocks;
  row_capacity_ = static_cast<std::uint32_t>(num_blocks) * kernel_blocks_per_block_;
  for (Rows* rows : {&staged_, &committed_}) {
    rows->blocks.resize(std::size_t{limits.num_rows} * row_capacity_);
    rows->counts.resize(limits.num_rows);
  }
}

std::size_t BlockTable::start(std::uint32_t row) const {
  QUIRE_CHECK(row < limits_.num_rows, "the row exists");
  return std::size_t{row} * row_capacity_;
}

// Extends the changed range of the row. One range per row is enough, because a step changes the end of a row or the whole row.
void BlockTable::mark_changed(std::uint32_t row, std::uint32_t begin, std::uint32_t end) {
  changed_[row] = {std::min(changed_[row].begin, begin), std::max(changed_[row].end, end)};
}

// Writes the kernel blocks of one of the core's blocks to the row, from entry `at` on.
void BlockTable::put(std::uint32_t row, std::uint32_t at, BlockId block) {
  QUIRE_CHECK(block.value < limits_.num_blocks, "the block ID is less than the number of blocks");
  BlockId* entries = staged_.blocks.data() + start(row) + at;
  for (std::uint32_t i = 0; i < kernel_blocks_per_block_; ++i) entries[i] = BlockId{block.value * kernel_blocks_per_block_ + i};
}

void BlockTable::append(std::uint32_t row, std::span<const BlockId> blocks) {
  QUIRE_CHECK(row < limits_.num_rows, "the row exists");
  std::uint32_t& count = staged_.counts[row];
  QUIRE_CHECK(blocks.size() <= (row_capacity_ - count) / kernel_blocks_per_block_, "the blocks fit into the row of the block table");
  const std::uint32_t begin = count;
  for (const BlockId block : blocks) {
    put(row, count, block);
    count += kernel_blocks_per_block_;
  }
  mark_changed(row, begin, count);
}

void BlockTable::add(std::uint32_t row, std::span<const BlockId> blocks) {
  QUIRE_CHECK(row < limits_.num_rows, "the row exists");
  staged_.counts[row] = 0;
  append(row, blocks);
}

void BlockTable::replace(std::uint32_t row, std::uint32_t index, BlockId block) {
  QUIRE_CHECK(row < limits_.num_rows, "the row exists");
  QUIRE_CHECK(index < staged_.counts[row] / kernel_blocks_per_block_, "a replaced entry exists");
  put(row, index * kernel_blocks_per_block_, block);
  mark_changed(row, index * kernel_blocks_per_block_, (index + 1) * kernel_blocks_per_block_);
}

void BlockTable::clear(std::uint32_t row) {
  const std::size_t begin = start(row);
  const std::uint32_t count = std::exchange(staged_.counts[row], 0);
  std::fill_n(staged_.blocks.begin() + static_cast<std::ptrdiff_t>(begin), count, kNullBlock);
  mark_changed(row, 0, count);
}

void BlockTable::move(std::uint32_t from, std::uint32_t to) {
  const std::size_t source = start(from);
  const std::size_t target = start(to);
  const std::uint32_t count = staged_.counts[from];
  if (from != to) std::copy_n(staged_.blocks.data() + source, count, staged_.blocks.data() + target);
  staged_.counts[to] = count;
  mark_changed(to, 0, count);
}

void BlockTable::swap(std::uint32_t a, std::uint32_t b) {
  BlockId* first = staged_.blocks.data() + start(a);
  BlockId* second = staged_.blocks.data() + start(b);
  if (a == b) return;
  std::swap_ranges(first, first + row_capacity_, second);
  std::swap(staged_.counts[a], staged_.counts[b]);
  mark_changed(a, 0, row_capacity_);
  mark_changed(b, 0, row_capacity_);
}

void BlockTable::commit(std::uint32_t num_rows) {
  QUIRE_CHECK(num_rows <= limits_.num_rows, "the row exists");
  for (std::uint32_t row = 0; row < num_rows; ++row) {
    const Changed changed = std::exchange(changed_[row], {});
    committed_.counts[row] = staged_.counts[row];
    if (changed.begin >= changed.end) continue;
    const std::size_t begin = start(row) + changed.begin;
    std::copy_n(staged_.blocks.data() + begin, changed.end - changed.begin, committed_.blocks.data() + begin);
  }
}

std::span<const BlockId> BlockTable::row(std::uint32_t row) const {
  return {committed_.blocks.data() + start(row), committed_.counts[row]};
}

std::int64_t BlockTable::slot(std::uint32_t row, std::uint32_t position) const {
  // Finds a token by its position in the sequence: position / size is the entry, position % size the offset in the block. With several
  // ranks, groups of interleave_size tokens go to the ranks in turn, and this rank holds every world_size-th group.
  const auto blocks = this->row(row);
  const std::uint32_t ranks = limits_.parallel.world_size();
  const std::uint32_t turn = limits_.parallel.interleave_size;
  const std::uint32_t size = limits_.kernel_block_size * ranks;
  QUIRE_CHECK(position / size < blocks.size(), "the position is within the blocks of the row");
  const std::uint32_t offset = position % size;
  if (offset / turn % ranks != limits_.parallel.rank()) return kNoSlot;
  const std::uint32_t own_offset = offset / (turn * ranks) * turn + offset % turn;
  return std::int64_t{blocks[position / size].value} * limits_.kernel_block_size + own_offset;
}

}  // namespace quire
