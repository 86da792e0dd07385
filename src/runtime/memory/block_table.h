#pragma once
// The block table of one cache group: a row per slot of the persistent batch, position p of which lies in the row's block p / block_size.
// The verbs and their effects are those of vLLM V1's BlockTable (v0.19.0).
//
// Rows are changed in a staged copy; commit() makes the changes of a step visible to those who read, all at once. Kernels may want smaller
// blocks than the core counts: a block then stands in the row as so many kernel blocks, one after the other. With context parallelism the
// tokens of a block are dealt out to all ranks, interleave_size tokens in turn: a rank's row covers as many tokens as its blocks hold
// times the number of ranks.
#include <cstdint>
#include <span>
#include <vector>

#include "quire/base/ids.h"

namespace quire {

// This process's place among the ranks that share a sequence. vLLM's order: the rank of prefill counts first.
struct ContextParallel {
  std::uint32_t dcp_world_size = 1, dcp_rank = 0;  // of decoding
  std::uint32_t pcp_world_size = 1, pcp_rank = 0;  // of prefill
  std::uint32_t interleave_size = 1;               // tokens

  [[nodiscard]] std::uint32_t world_size() const { return pcp_world_size * dcp_world_size; }
  [[nodiscard]] std::uint32_t rank() const { return pcp_rank * dcp_world_size + dcp_rank; }
};

struct BlockTableLimits {
  std::uint32_t num_rows = 0;           // max_num_seqs
  std::uint32_t max_model_len = 0;      // tokens
  std::uint32_t num_blocks = 0;         // of the cache: ids at or above it are refused
  std::uint32_t block_size = 0;         // tokens, as the core counts
  std::uint32_t kernel_block_size = 0;  // tokens, as kernels count: divides block_size
  ContextParallel parallel = {};
  std::uint32_t num_more_blocks = 0;  // of a row, beyond those of its tokens
};

// What does not fit (a row, an entry or a block that there is not, more blocks than max_model_len tokens and num_more_blocks need) is a
// broken invariant: the core has planned what the worker was built for.
class BlockTable {
 public:
  // A token of another rank has no place here.
  static constexpr std::int64_t kNoSlot = -1;

  explicit BlockTable(const BlockTableLimits& limits);

  // Staged. Blocks are those of the core.
  void append(std::uint32_t row, std::span<const BlockId> blocks);
  void add(std::uint32_t row, std::span<const BlockId> blocks);  // instead of what the row had
  void replace(std::uint32_t row, std::uint32_t index, BlockId block);
  void clear(std::uint32_t row);  // entries become the null block
  void move(std::uint32_t from, std::uint32_t to);
  void swap(std::uint32_t a, std::uint32_t b);

  // What is staged in the first so many rows is visible from now on.
  void commit(std::uint32_t num_rows);

  // Committed: kernel blocks, valid until the next commit that changes the row.
  [[nodiscard]] std::span<const BlockId> row(std::uint32_t row) const;
  // Committed: where a token's keys and values lie (kernel block * kernel_block_size + offset), or kNoSlot. The position lies in a block.
  [[nodiscard]] std::int64_t slot(std::uint32_t row, std::uint32_t position) const;

  [[nodiscard]] const BlockTableLimits& limits() const { return limits_; }
  // All rows, [row][row_capacity()], with what they held before beyond their ends: for tests.
  [[nodiscard]] std::span<const BlockId> staged() const { return staged_.blocks; }
  [[nodiscard]] std::span<const BlockId> committed() const { return committed_.blocks; }
  [[nodiscard]] std::span<const std::uint32_t> staged_counts() const { return staged_.counts; }
  [[nodiscard]] std::uint32_t row_capacity() const { return row_capacity_; }

 private:
  // Two of the same shape: what is being changed, and what kernels read.
  struct Rows {
    std::vector<BlockId> blocks;        // [row][row_capacity_]
    std::vector<std::uint32_t> counts;  // by row, kernel blocks
  };
  // Staged entries of a row that are not committed yet.
  struct Changed {
    std::uint32_t begin = UINT32_MAX;
    std::uint32_t end = 0;
  };
  [[nodiscard]] std::size_t start(std::uint32_t row) const;
  void put(std::uint32_t row, std::uint32_t at, BlockId block);
  void mark(std::uint32_t row, std::uint32_t begin, std::uint32_t end);

  BlockTableLimits limits_;
  std::uint32_t kernel_blocks_per_block_ = 1;
  std::uint32_t row_capacity_ = 0;  // kernel blocks
  Rows staged_, committed_;
  std::vector<Changed> changed_;  // by row
};

}  // namespace quire
