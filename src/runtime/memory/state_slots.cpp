#include "runtime/memory/state_slots.h"

#include <algorithm>

#include "base/check.h"

namespace quire {

BlockId StateSlots::block_at(std::uint32_t position) const {
  QUIRE_CHECK(position / block_size_ < blocks_.size(), "the position is within the blocks of the request");
  return blocks_[position / block_size_];
}

// Returns whether the block is spare. An earlier entry of the table may also list a spare block, which was spare before more tokens were
// added.
bool StateSlots::is_spare(BlockId block) const {
  return std::ranges::find(blocks_.last(num_spare_), block) != blocks_.end();
}

BlockId StateSlots::after(std::uint32_t row) const {
  QUIRE_CHECK(row < rows_.num_tokens && rows_.num_drafts <= num_spare_ && num_spare_ <= blocks_.size(),
              "the row is one of the request's rows, and its state has a slot");
  const BlockId block = final_block(row);
  if (row + 1 == rows_.num_tokens) {
    QUIRE_CHECK(block != kNullBlock, "the state has a block");
    return block;
  }
  const bool ends_block = (rows_.first_position + row + 1) % block_size_ == 0;
  if (ends_block && block != kNullBlock && !is_spare(block)) return block;
  return row < first_saved_row() ? kNullBlock : blocks_[blocks_.size() - num_spare_ + row - first_saved_row()];
}

}  // namespace quire
