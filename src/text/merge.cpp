#include "text/merge.h"

namespace quire {

void Merger::clear(std::size_t num_bytes) {
  cells_.clear();
  cells_.reserve(num_bytes);
}

void Merger::append(TokenId id, std::uint32_t length) {
  cells_.push_back({id, length});
  if (length == 1) return;
  cells_.resize(cells_.size() + length - 1, {kInside, 0});
  cells_.back().length = length;
}

void Merger::join(std::uint32_t left, TokenId id) {
  const std::uint32_t right = left + cells_[left].length;
  const std::uint32_t length = cells_[left].length + cells_[right].length;
  cells_[right].id = kInside;
  cells_[left] = {id, length};
  cells_[left + length - 1].length = length;
}

}  // namespace quire
