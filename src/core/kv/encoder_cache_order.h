#pragma once
// The order in which CPython walks a set of small integers: slot by slot through an open-addressed table (Objects/setobject.c). vLLM frees
// a request's encoder outputs in this order, and eviction follows it.
#include <cstddef>
#include <cstdint>
#include <vector>

namespace quire {

class SmallIntSetOrder {
 public:
  // Reorders distinct values, given in the order in which they were added to the set. Reuses its table: no allocation once it has grown.
  void apply(std::vector<std::uint32_t>& values);

 private:
  static constexpr std::uint32_t kEmpty = UINT32_MAX;
  static void insert(std::vector<std::uint32_t>& table, std::uint32_t value);
  void grow(std::size_t num_values);

  std::vector<std::uint32_t> table_;
  std::vector<std::uint32_t> old_table_;
};

}  // namespace quire
