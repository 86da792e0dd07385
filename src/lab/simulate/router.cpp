#include "lab/simulate/router.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace quire {
namespace {

constexpr std::size_t kStride = 16;             // blocks
constexpr std::size_t kMostPrefixes = 1 << 20;  // in each generation
// An instance is not chosen for its prefixes if it has more open requests than twice the least loaded instance plus kSlack.
constexpr std::uint32_t kSlack = 8;

std::uint32_t idlest(std::span<const std::uint32_t> num_open) {
  return static_cast<std::uint32_t>(std::ranges::min_element(num_open) - num_open.begin());
}

}  // namespace

std::uint32_t InstanceRouter::choose(std::span<const BlockHash> names, std::span<const std::uint32_t> num_open) {
  QUIRE_CHECK(!num_open.empty(), "there is at least one instance");
  switch (routing_) {
    case Routing::round_robin:
      return static_cast<std::uint32_t>(num_chosen_++ % num_open.size());
    case Routing::least_loaded:
      return idlest(num_open);
    case Routing::by_prefix:
      return by_prefix(names, num_open);
  }
  return 0;
}

std::uint32_t InstanceRouter::by_prefix(std::span<const BlockHash> names, std::span<const std::uint32_t> num_open) {
  std::uint32_t chosen = idlest(num_open);
  const std::uint32_t most_open = 2 * num_open[chosen] + kSlack;
  // Tries the prefixes from the longest to the shortest, until the instance that has the prefix is not too busy.
  const std::size_t num_marks = names.empty() ? 0 : (names.size() - 1) / kStride + 1;
  for (std::size_t mark = num_marks; mark-- > 0;) {
    const std::uint64_t key = names[mark * kStride].prefix();
    auto known = young_.find(key);
    if (known == young_.end()) {
      known = old_.find(key);
      if (known == old_.end()) continue;
    }
    if (num_open[known->second] > most_open) continue;
    chosen = known->second;
    break;
  }
  for (std::size_t mark = 0; mark < num_marks; ++mark) young_[names[mark * kStride].prefix()] = chosen;
  if (young_.size() > kMostPrefixes) {
    old_ = std::move(young_);
    young_.clear();
  }
  return chosen;
}

}  // namespace quire
