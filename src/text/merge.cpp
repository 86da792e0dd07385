#include "text/merge.h"

namespace quire {

void Merger::link() {
  heap_.clear();
  const auto count = static_cast<std::int32_t>(symbols.size());
  for (std::int32_t i = 0; i < count; ++i) {
    symbols[static_cast<std::size_t>(i)].prev = i - 1;
    symbols[static_cast<std::size_t>(i)].next = i + 1 < count ? i + 1 : -1;
  }
}

bool Merger::next_candidate(Candidate& out) {
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end());
    out = heap_.back();
    heap_.pop_back();
    const Symbol& left = symbols[static_cast<std::size_t>(out.left)];
    if (left.length == 0 || left.next < 0) continue;
    if (left.length + symbols[static_cast<std::size_t>(left.next)].length == out.length) return true;
  }
  return false;
}

void Merger::join(const Candidate& candidate) {
  Symbol& left = symbols[static_cast<std::size_t>(candidate.left)];
  Symbol& right = symbols[static_cast<std::size_t>(left.next)];
  left.length = candidate.length;
  left.id = candidate.id;
  left.next = right.next;
  if (right.next >= 0) symbols[static_cast<std::size_t>(right.next)].prev = candidate.left;
  right.length = 0;
}

}  // namespace quire
