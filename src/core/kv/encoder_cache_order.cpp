// CPython's set of small integers, as far as its order goes (Objects/setobject.c of 3.12). Called with the few inputs of a request, or the
// bad blocks of a load. It allocates nothing once its table has grown.
#include "core/kv/encoder_cache_order.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace quire {
namespace {

constexpr std::size_t kSmallestTable = 8;
constexpr std::size_t kLinearProbes = 9;
constexpr unsigned kPerturbShift = 5;
constexpr std::size_t kLargeSet = 50000;  // from here on a table doubles instead of growing fourfold

}  // namespace

void SmallIntSetOrder::apply(std::vector<std::uint32_t>& values) {
  // Values below the smallest table's size have a slot of their own each, in ascending order.
  if (values.empty() || (std::ranges::is_sorted(values) && values.back() < kSmallestTable)) return;
  const std::size_t num_values = values.size();
  table_.assign(kSmallestTable, kEmpty);
  for (std::size_t i = 0; i < values.size(); ++i) {
    insert(table_, values[i]);
    const std::size_t used = i + 1;
    if (used * 5 >= (table_.size() - 1) * 3) grow(used > kLargeSet ? used * 2 : used * 4);
  }
  values.clear();
  std::ranges::copy_if(table_, std::back_inserter(values), [](std::uint32_t value) { return value != kEmpty; });
  QUIRE_CHECK(values.size() == num_values, "every value comes back");
}

void SmallIntSetOrder::insert(std::vector<std::uint32_t>& table, std::uint32_t value) {
  const std::size_t mask = table.size() - 1;
  std::size_t perturb = value;
  std::size_t slot = value & mask;
  while (true) {
    const std::size_t last = slot + kLinearProbes <= mask ? slot + kLinearProbes : slot;
    for (std::size_t i = slot; i <= last; ++i) {
      if (table[i] == kEmpty) {
        table[i] = value;
        return;
      }
    }
    perturb >>= kPerturbShift;
    slot = (slot * 5 + 1 + perturb) & mask;
  }
}

void SmallIntSetOrder::grow(std::size_t num_values) {
  std::size_t size = kSmallestTable;
  while (size <= num_values) size *= 2;
  QUIRE_CHECK(std::has_single_bit(size) && size > num_values, "a power of two with a free slot");
  old_table_.swap(table_);
  table_.assign(size, kEmpty);
  for (std::uint32_t value : old_table_)
    if (value != kEmpty) insert(table_, value);
}

}  // namespace quire
