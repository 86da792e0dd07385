#include "lab/simulate/modelled_links.h"

#include <algorithm>
#include <limits>

namespace quire {

void ModelledLinks::begin(const Transfer& transfer, double from_s) {
  const bool is_load = transfer.direction == TransferDirection::load;
  const double bytes = block_bytes_ * static_cast<double>(transfer.blocks.size());
  double& free_s = is_load ? load_free_s_ : store_free_s_;
  const double start_s = std::max(from_s, free_s);
  free_s = start_s + bytes / (is_load ? tier_.load_bytes_per_s : tier_.store_bytes_per_s);
  (is_load ? loaded_bytes_ : stored_bytes_) += bytes;
  const double end_s = free_s + tier_.latency_s;
  open_.push_back({end_s, {.transfer = transfer.id, .bytes = static_cast<std::uint64_t>(bytes), .seconds = end_s - start_s}});
}

double ModelledLinks::end_of(std::span<const TransferId> transfers) const {
  double end_s = 0.0;
  for (const Open& one : open_)
    if (std::ranges::find(transfers, one.completion.transfer) != transfers.end()) end_s = std::max(end_s, one.end_s);
  return end_s;
}

double ModelledLinks::next_end_s() const {
  double end_s = std::numeric_limits<double>::infinity();
  for (const Open& one : open_) end_s = std::min(end_s, one.end_s);
  return end_s;
}

std::span<const TransferCompletion> ModelledLinks::take_completed(double now_s) {
  over_.clear();
  if (open_.empty()) return over_;
  std::ranges::sort(open_, [](const Open& a, const Open& b) {
    return a.end_s != b.end_s ? a.end_s < b.end_s : a.completion.transfer < b.completion.transfer;
  });
  const auto end = std::ranges::upper_bound(open_, now_s, {}, &Open::end_s);
  for (auto one = open_.begin(); one != end; ++one) over_.push_back(one->completion);
  open_.erase(open_.begin(), end);
  return over_;
}

}  // namespace quire
