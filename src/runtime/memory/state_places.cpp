#include "runtime/memory/state_places.h"

#include <algorithm>

#include "base/check.h"

namespace quire {

BlockId StatePlaces::block_at(std::uint32_t position) const {
  QUIRE_CHECK(position / block_size_ < blocks_.size(), "position beyond the block table");
  return blocks_[position / block_size_];
}

// A table may name one again further in front, where it was spare before more tokens came.
bool StatePlaces::is_spare(BlockId block) const {
  return std::ranges::find(blocks_.last(num_spare_), block) != blocks_.end();
}

BlockId StatePlaces::behind(std::uint32_t row) const {
  QUIRE_CHECK(row < rows_.num_tokens && rows_.num_drafts <= num_spare_ && num_spare_ <= blocks_.size(), "a row that may be kept");
  const BlockId block = home(row);
  if (row + 1 == rows_.num_tokens) {
    QUIRE_CHECK(block != kNullBlock, "the state has a place");
    return block;
  }
  const bool ends_block = (rows_.first_position + row + 1) % block_size_ == 0;
  if (ends_block && block != kNullBlock && !is_spare(block)) return block;
  return row < first_kept() ? kNullBlock : blocks_[blocks_.size() - num_spare_ + row - first_kept()];
}

}  // namespace quire
