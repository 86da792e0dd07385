#include "engine/journal/journal_ring.h"

#include <algorithm>
#include <utility>

namespace quire {
namespace {

constexpr std::uint64_t kLargestReserve = std::uint64_t{64} << 10U;

}  // namespace

bool JournalRing::make_room(std::uint64_t num_bytes, std::size_t num_kept) {
  while (num_bytes_ + num_bytes > max_bytes_ && parts_.size() > num_kept) {
    num_bytes_ -= parts_.front().num_bytes;
    parts_.pop_front();
  }
  return num_bytes_ + num_bytes <= max_bytes_;
}

void JournalRing::append(std::span<const std::uint8_t> calls) {
  if (parts_.empty() || calls.empty()) return;
  std::vector<std::vector<std::uint8_t>>& lists = parts_.back().calls;
  if (!lists.empty() && lists.back().capacity() - lists.back().size() >= calls.size()) {
    lists.back().insert(lists.back().end(), calls.begin(), calls.end());
    return;
  }
  // Reserves memory for more calls, because many small allocations would take several times the size of the calls.
  const std::uint64_t reserve = std::max<std::uint64_t>(calls.size(), std::min(kLargestReserve, max_bytes_ / 64));
  if (!make_room(reserve + kListBytes, 1)) return lose();
  Part& part = parts_.back();
  part.calls.emplace_back().reserve(reserve);
  part.calls.back().assign(calls.begin(), calls.end());
  part.num_bytes += reserve + kListBytes;
  num_bytes_ += reserve + kListBytes;
}

void JournalRing::begin(const JournalProgress& progress, std::vector<std::uint8_t> checkpoint) {
  const std::uint64_t num_bytes = kPartBytes + checkpoint.size();
  if (num_bytes > max_bytes_) return;  // the current part continues
  (void)make_room(num_bytes, 0);
  num_bytes_ += num_bytes;
  parts_.push_back({.progress = progress, .checkpoint = std::move(checkpoint), .num_bytes = num_bytes});
}

void JournalRing::lose() {
  parts_.clear();
  num_bytes_ = 0;
}

void JournalRing::visit(const std::function<void(FrameKind kind, std::span<const std::uint8_t> payload)>& visit) const {
  for (const Part& part : parts_) {
    if (!part.checkpoint.empty()) visit(FrameKind::checkpoint, part.checkpoint);
    for (const std::vector<std::uint8_t>& calls : part.calls) visit(FrameKind::calls, calls);
  }
}

}  // namespace quire
