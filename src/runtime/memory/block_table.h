#pragma once
// The block table of one cache group, with one row per row of the persistent batch. Position p is in the row's block p / block_size. The
// functions and their effects are the same as in vLLM V1's BlockTable (v0.19.0).
//
// Rows are changed in a staged copy; commit() makes all changes of a step visible to readers together. Kernels may use smaller blocks than
// the core: a block then appears in the row as several consecutive kernel blocks. With context parallelism, the tokens of a block are dealt
// out to all ranks, interleave_size tokens per turn: a rank's row covers as many tokens as its blocks hold times the number of ranks.
#include <cstdint>
#include <span>
#include <vector>

#include "quire/base/ids.h"

namespace quire {

// The position of this process among the ranks that share a sequence. vLLM's order: the prefill rank counts first.
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

// An argument that does not fit is a broken invariant, because the core plans for the limits of this worker. Examples are a row, entry or
// block that does not exist, and more blocks than max_model_len tokens and num_extra_blocks need.
class BlockTable {
 public:
  // Returned for a token that another rank holds.
  static constexpr std::int64_t kNoSlot = -1;

  explicit BlockTable(const BlockTableLimits& limits);

  // These change the staged rows. Block IDs are the core's.
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
  // All rows, [row][row_capacity()], including old entries after a row's end; for tests.
  [[nodiscard]] std::span<const BlockId> staged() const { return staged_.blocks; }
  [[nodiscard]] std::span<const BlockId> committed() const { return committed_.blocks; }
  [[nodiscard]] std::span<const std::uint32_t> staged_counts() const { return staged_.counts; }
  [[nodiscard]] std::uint32_t row_capacity() const { return row_capacity_; }

 private:
  // There are two copies: one that is being changed, and one that kernels read.
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
  void mark_changed(std::uint32_t row, std::uint32_t begin, std::uint32_t end);

  BlockTableLimits limits_;
  std::uint32_t kernel_blocks_per_block_ = 1;
  std::uint32_t row_capacity_ = 0;  // kernel blocks
  Rows staged_, committed_;
  std::vector<Changed> changed_;  // by row
};

}  // namespace quire
