#pragma once
// Where the states behind a request's rows go, in one cache group. Written where they are made (runtime/model) and read where it is known
// how many of a pass's drafts were right (runtime/worker).
#include <cstdint>
#include <span>

#include "quire/base/ids.h"

namespace quire {

// Rows of one request in a pass: num_tokens from first_position on, of which the last num_drafts may prove wrong.
struct StateRows {
  std::uint32_t first_position = 0;
  std::uint32_t num_tokens = 0;
  std::uint32_t num_drafts = 0;
};

// A state is kept where a block ends, if the request has that block, and behind the last row, in the block that it is in. Where the last
// rows are drafts the states behind the rows before are kept, too, in the spare blocks at the end of the request's table: the right one
// comes to its own block when it is known which that is (home()). A view, for one pass.
class StatePlaces {
 public:
  // `blocks`: the request's, of which the last num_spare are spare ones.
  StatePlaces(std::span<const BlockId> blocks, std::uint32_t block_size, std::uint32_t num_spare, const StateRows& rows)
      : blocks_(blocks), block_size_(block_size), num_spare_(num_spare), rows_(rows) {}

  // The first row behind which the state is kept wherever that is.
  [[nodiscard]] std::uint32_t first_kept() const { return rows_.num_tokens - 1 - rows_.num_drafts; }
  // kNullBlock: it is not kept.
  [[nodiscard]] BlockId behind(std::uint32_t row) const;
  // Where who goes on behind the row looks for it.
  [[nodiscard]] BlockId home(std::uint32_t row) const { return block_at(rows_.first_position + row); }
  // The state before the first row; there are tokens before it.
  [[nodiscard]] BlockId before() const { return block_at(rows_.first_position - 1); }

 private:
  [[nodiscard]] BlockId block_at(std::uint32_t position) const;
  [[nodiscard]] bool is_spare(BlockId block) const;

  std::span<const BlockId> blocks_;
  std::uint32_t block_size_, num_spare_;
  StateRows rows_;
};

}  // namespace quire
