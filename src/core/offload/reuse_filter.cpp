#include "core/offload/reuse_filter.h"

#include <fmt/core.h>

#include "base/check.h"

namespace quire {

Result<std::unique_ptr<ReuseFilter>> ReuseFilter::create(std::int64_t store_threshold, std::int64_t max_tracked_keys) {
  if (store_threshold < 2)
    return fail(ErrorCode::invalid_argument, "store_threshold", fmt::format("must be at least 2, got {}", store_threshold),
                "use 2 or more");
  if (max_tracked_keys < 1 || max_tracked_keys > (1 << 28)) {
    return fail(ErrorCode::invalid_argument, "max_tracked_keys", fmt::format("{} is out of range", max_tracked_keys),
                "use a value from 1 to 268435456");
  }
  return std::unique_ptr<ReuseFilter>(
      new ReuseFilter(static_cast<std::uint64_t>(store_threshold), static_cast<std::uint32_t>(max_tracked_keys)));
}

ReuseFilter::ReuseFilter(std::uint64_t store_threshold, std::uint32_t max_tracked_keys)
    : store_threshold_(store_threshold), index_(max_tracked_keys), counts_(max_tracked_keys), links_(max_tracked_keys), order_(links_) {}

void ReuseFilter::count(std::span<const OffloadKey> keys) {
  for (const OffloadKey& key : keys) {
    std::uint32_t entry = index_.find(key);
    if (entry != kNoIndex) {
      order_.remove(entry);
    } else {
      entry = take_entry();
      index_.insert(key, entry);
      counts_[entry] = 0;
    }
    ++counts_[entry];
    order_.push_back(entry);
  }
}

std::uint32_t ReuseFilter::take_entry() {
  QUIRE_CHECK(order_.size() == index_.size(), "each used entry has a key");
  if (order_.size() < links_.size()) return order_.size();
  const std::uint32_t oldest = order_.front();
  QUIRE_CHECK(oldest != kNoIndex, "the filter has at least one entry");
  order_.remove(oldest);
  index_.remove(oldest);
  return oldest;
}

std::span<const OffloadKey> ReuseFilter::eligible(std::span<const OffloadKey> keys) {
  eligible_.clear();
  for (const OffloadKey& key : keys) {
    const std::uint32_t entry = index_.find(key);
    if (entry != kNoIndex && counts_[entry] >= store_threshold_) eligible_.push_back(key);
  }
  return eligible_;
}

std::vector<ReuseFilter::Counted> ReuseFilter::snapshot() const {
  std::vector<Counted> counted;
  order_.for_each([&](std::uint32_t entry) { counted.push_back({index_.key_of(entry), counts_[entry]}); });
  return counted;
}

void ReuseFilter::check_invariants() const {
  QUIRE_CHECK(index_.size() == order_.size() && order_.size() <= links_.size());
  order_.for_each([&](std::uint32_t entry) { QUIRE_CHECK(index_.find(index_.key_of(entry)) == entry && counts_[entry] > 0); });
  order_.check_invariants();
  index_.check_invariants();
}

}  // namespace quire
