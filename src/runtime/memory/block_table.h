#pragma once
// The block table of one cache group, with one row per row of the persistent batch. The token at position p is in entry p / block_size of
// the row. The functions have the same effects as the functions of vLLM V1's BlockTable (v0.19.0).
// Changes are made in a staged copy; commit() makes all changes of a step visible to readers together. Kernels may use smaller blocks than
// the core: a block then appears in the row as several consecutive kernel blocks. With context parallelism, the tokens of a block are
// distributed over all ranks, interleave_size tokens at a time: a row covers (tokens of its blocks) * (number of ranks) tokens.
#include <cstdint>
#include <span>
#include <vector>

#include "quire/base/ids.h"

namespace quire {

// Position of this process among the ranks that share a sequence. As in vLLM, rank() counts the prefill rank first.
struct ContextParallel {
  std::uint32_t dcp_world_size = 1, dcp_rank = 0;  // decode context parallelism
  std::uint32_t pcp_world_size = 1, pcp_rank = 0;  // prefill context parallelism
  std::uint32_t interleave_size = 1;               // in tokens

  [[nodiscard]] std::uint32_t world_size() const { return pcp_world_size * dcp_world_size; }
  [[nodiscard]] std::uint32_t rank() const { return pcp_rank * dcp_world_size + dcp_rank; }
};

struct BlockTableLimits {
  std::uint32_t num_rows = 0;           // max_num_seqs
  std::uint32_t max_model_len = 0;      // in tokens
  std::uint32_t num_blocks = 0;         // in the cache; ids at or above it are refused
  std::uint32_t block_size = 0;         // tokens per block of the core
  std::uint32_t kernel_block_size = 0;  // tokens per kernel block; divides block_size
  ContextParallel parallel = {};
  std::uint32_t num_extra_blocks = 0;  // per row, in addition to the blocks for its tokens
};

// The functions check their arguments as invariants, because the core plans within the limits of this worker. Examples: the row, entry and
// block exist; a row has at most the blocks that max_model_len tokens and num_extra_blocks need.
class BlockTable {
 public:
  // slot() of a token that another rank holds.
  static constexpr std::int64_t kNoSlot = -1;

  explicit BlockTable(const BlockTableLimits& limits);

  // append() to swap() change the staged rows. Block IDs are the core's.
  void append(std::uint32_t row, std::span<const BlockId> blocks);
  void add(std::uint32_t row, std::span<const BlockId> blocks);  // replaces all entries of the row
  void replace(std::uint32_t row, std::uint32_t index, BlockId block);
  void clear(std::uint32_t row);  // entries become the null block
  void move(std::uint32_t from, std::uint32_t to);
  void swap(std::uint32_t a, std::uint32_t b);

  // Makes the staged changes of the first `num_rows` rows visible.
  void commit(std::uint32_t num_rows);

  // Returns the committed kernel blocks of a row, valid until the next commit that changes the row.
  [[nodiscard]] std::span<const BlockId> row(std::uint32_t row) const;
  // Returns the committed location of a token's keys and values (kernel block * kernel_block_size + offset), or kNoSlot. The position must
  // be in one of the row's blocks.
  [[nodiscard]] std::int64_t slot(std::uint32_t row, std::uint32_t position) const;

  [[nodiscard]] const BlockTableLimits& limits() const { return limits_; }
  // Return all rows, [row][row_capacity()], including old entries after a row's end; for tests.
  [[nodiscard]] std::span<const BlockId> staged() const { return staged_.blocks; }
  [[nodiscard]] std::span<const BlockId> committed() const { return committed_.blocks; }
  [[nodiscard]] std::span<const std::uint32_t> staged_counts() const { return staged_.counts; }
  [[nodiscard]] std::uint32_t row_capacity() const { return row_capacity_; }

 private:
  // Copy of all rows. There are two: kernels read one while the other is changed.
  struct Rows {
    std::vector<BlockId> blocks;        // [row][row_capacity_]
    std::vector<std::uint32_t> counts;  // by row, kernel blocks
  };
  // Range of staged entries in a row that are not committed yet.
  struct Changed {
    std::uint32_t begin = UINT32_MAX;
    std::uint32_t end = 0;
  };
  [[nodiscard]] std::size_t start(std::uint32_t row) const;
  void put(std::uint32_t row, std::uint32_t at, BlockId block);
  void mark_changed(std::uint32_t row, std::uint32_t begin, std::uint32_t end);

  BlockTableLimits limits_;
  std::uint32_t kernel_blocks_per_block_ = 1;
  std::uint32_t row_capacity_ = 0;  // kernel blocks
  Rows staged_, committed_;
  std::vector<Changed> changed_;  // by row
};

}  // namespace quire
