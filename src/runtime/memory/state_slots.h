#pragma once
// Blocks in which the states after a request's rows are kept, in one cache group. runtime/model writes the states to these blocks.
// runtime/worker reads the states when the number of accepted draft tokens is known.
#include <cstdint>
#include <span>

#include "quire/base/ids.h"

namespace quire {

// Rows of one request in a pass: num_tokens rows from first_position on. The last num_drafts rows are draft tokens that may be rejected.
struct StateRows {
  std::uint32_t first_position = 0;
  std::uint32_t num_tokens = 0;
  std::uint32_t num_drafts = 0;
};

// A state is kept after the last token of each block that the request has, and after the last row, in the block of that row. If the last
// rows are draft tokens, the states after the rows from first_saved_row() on are also kept, in the spare blocks at the end of the request's
// table. When the number of accepted tokens is known, the state after the last accepted token is copied to final_block(). The object refers
// to the block table, and is valid for one pass.
class StateSlots {
 public:
  // `blocks`: the request's block table; its last num_spare blocks are spare.
  StateSlots(std::span<const BlockId> blocks, std::uint32_t block_size, std::uint32_t num_spare, const StateRows& rows)
      : blocks_(blocks), block_size_(block_size), num_spare_(num_spare), rows_(rows) {}

  // Returns the first row from which on the states after all rows are kept.
  [[nodiscard]] std::uint32_t first_saved_row() const { return rows_.num_tokens - 1 - rows_.num_drafts; }
  // Returns the block for the state after the row; kNullBlock if the state is not kept.
  [[nodiscard]] BlockId after(std::uint32_t row) const;
  // Returns the block in which the next pass, if it continues after the row, expects the state.
  [[nodiscard]] BlockId final_block(std::uint32_t row) const { return block_at(rows_.first_position + row); }
  // Returns the block with the state before the first row; the first row must not be the first token.
  [[nodiscard]] BlockId before() const { return block_at(rows_.first_position - 1); }

 private:
  [[nodiscard]] BlockId block_at(std::uint32_t position) const;
  [[nodiscard]] bool is_spare(BlockId block) const;

  std::span<const BlockId> blocks_;
  std::uint32_t block_size_, num_spare_;
  StateRows rows_;
};

}  // namespace quire
