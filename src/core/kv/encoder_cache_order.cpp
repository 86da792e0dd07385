// Computes the iteration order of CPython's set of small integers (Objects/setobject.c of 3.10 to 3.13). Called with the inputs of a
// request or with the blocks of a failed load. SmallIntSetOrder allocates nothing once its table has grown.
#include "core/kv/encoder_cache_order.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace quire {
namespace {

constexpr std::size_t kLinearProbes = 9;
constexpr unsigned kPerturbShift = 5;
constexpr std::size_t kLargeSet = 50000;  // a larger table doubles instead of growing fourfold

// Returns the first slot in the value's probe sequence for which `ends` returns true.
template <class Ends>
std::size_t walk(const std::vector<std::uint32_t>& table, std::uint32_t value, Ends ends) {
  QUIRE_CHECK(std::has_single_bit(table.size()), "the table size is a power of two");
  const std::size_t mask = table.size() - 1;
  std::size_t perturb = value;
  std::size_t slot = value & mask;
  while (true) {
    const std::size_t last = slot + kLinearProbes <= mask ? slot + kLinearProbes : slot;
    for (std::size_t i = slot; i <= last; ++i)
      if (ends(i)) return i;
    perturb >>= kPerturbShift;
    slot = (slot * 5 + 1 + perturb) & mask;
  }
}

bool is_crowded(std::size_t num_taken, std::size_t size) {
  return num_taken * 5 >= (size - 1) * 3;
}

std::size_t grown(std::size_t num_values) {
  return num_values > kLargeSet ? num_values * 2 : num_values * 4;
}

}  // namespace

void SmallIntSetOrder::apply(std::vector<std::uint32_t>& values) {
  // If all values are less than the size of the smallest table, each has its own slot, in ascending order.
  if (values.empty() || (std::ranges::is_sorted(values) && values.back() < kSmallestSetTable)) return;
  const std::size_t num_values = values.size();
  table_.assign(kSmallestSetTable, kEmpty);
  for (std::size_t i = 0; i < values.size(); ++i) {
    insert(table_, values[i]);
    const std::size_t used = i + 1;
    if (is_crowded(used, table_.size())) grow(grown(used));
  }
  values.clear();
  std::ranges::copy_if(table_, std::back_inserter(values), [](std::uint32_t value) { return value != kEmpty; });
  QUIRE_CHECK(values.size() == num_values, "all values are returned");
}

void SmallIntSetOrder::insert(std::vector<std::uint32_t>& table, std::uint32_t value) {
  table[walk(table, value, [&](std::size_t i) { return table[i] == kEmpty; })] = value;
}

void SmallIntSetOrder::grow(std::size_t num_values) {
  std::size_t size = kSmallestSetTable;
  while (size <= num_values) size *= 2;
  QUIRE_CHECK(std::has_single_bit(size) && size > num_values, "the table size is a power of two, and a slot is free");
  old_table_.swap(table_);
  table_.assign(size, kEmpty);
  for (std::uint32_t value : old_table_)
    if (value != kEmpty) insert(table_, value);
}

void SmallIntSet::add(std::uint32_t value) {
  QUIRE_CHECK(value < kDiscarded, "an added value is below the reserved values");
  std::size_t marked = table_.size();
  std::size_t slot = walk(table_, value, [&](std::size_t i) {
    if (table_[i] == kDiscarded) marked = i;
    return table_[i] == value || table_[i] == kEmpty;
  });
  if (table_[slot] == value) return;
  ++num_values_;
  // Reuses the last tombstone in the probe sequence before it takes an empty slot.
  const bool is_marked = marked < table_.size();
  table_[is_marked ? marked : slot] = value;
  num_taken_ += is_marked ? 0 : 1;
  if (!is_marked && is_crowded(num_taken_, table_.size())) rebuild();
}

void SmallIntSet::discard(std::uint32_t value) {
  QUIRE_CHECK(value < kDiscarded, "a discarded value is below the reserved values");
  const std::size_t slot = walk(table_, value, [&](std::size_t i) { return table_[i] == value || table_[i] == kEmpty; });
  if (table_[slot] != value) return;
  table_[slot] = kDiscarded;
  --num_values_;
}

void SmallIntSet::list(std::vector<std::uint32_t>& values) const {
  values.clear();
  std::ranges::copy_if(table_, std::back_inserter(values), [](std::uint32_t value) { return value < kDiscarded; });
}

// Rebuilds the table without tombstones.
void SmallIntSet::rebuild() {
  std::size_t size = kSmallestSetTable;
  while (size <= grown(num_values_)) size *= 2;
  std::vector<std::uint32_t> old(size, kEmpty);
  old.swap(table_);
  for (const std::uint32_t value : old)
    if (value < kDiscarded) table_[walk(table_, value, [&](std::size_t i) { return table_[i] == kEmpty; })] = value;
  num_taken_ = num_values_;
  QUIRE_CHECK(num_taken_ < table_.size(), "the table has a free slot");
}

void SmallIntSet::check_invariants() const {
  QUIRE_CHECK(std::has_single_bit(table_.size()) && table_.size() >= kSmallestSetTable,
              "the table size is a power of two and at least the minimum");
  std::size_t num_values = 0, num_taken = 0;
  for (const std::uint32_t value : table_) {
    num_taken += value == kEmpty ? 0 : 1;
    if (value >= kDiscarded) continue;
    ++num_values;
    const std::size_t slot = walk(table_, value, [&](std::size_t i) { return table_[i] == value || table_[i] == kEmpty; });
    QUIRE_CHECK(table_[slot] == value, "a value is on its probe sequence");
  }
  QUIRE_CHECK(num_values == num_values_ && num_taken == num_taken_, "the numbers of values and of taken slots are correct");
}

}  // namespace quire
