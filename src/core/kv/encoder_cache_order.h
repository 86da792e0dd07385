#pragma once
// Computes the iteration order of a CPython set of small integers, which is the slot order of an open-addressed table
// (Objects/setobject.c). vLLM frees a request's encoder outputs in this order, which decides the order of evictions.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace quire {

inline constexpr std::size_t kSmallestSetTable = 8;

class SmallIntSetOrder {
 public:
  // Reorders distinct values that are given in insertion order. Reuses its tables, so it allocates nothing once they have grown.
  void apply(std::vector<std::uint32_t>& values);

 private:
  static constexpr std::uint32_t kEmpty = UINT32_MAX;
  static void insert(std::vector<std::uint32_t>& table, std::uint32_t value);
  void grow(std::size_t num_values);

  std::vector<std::uint32_t> table_;
  std::vector<std::uint32_t> old_table_;
};

// A set of small integers with CPython's iteration order. A discarded value leaves a tombstone in the table, which affects the order of
// values that are added later. Values are less than kDiscarded.
class SmallIntSet {
 public:
  void add(std::uint32_t value);
  void discard(std::uint32_t value);
  [[nodiscard]] bool empty() const { return num_values_ == 0; }
  // Stops the program if a value cannot be found or a count is wrong.
  void check_invariants() const;
  // Replaces the content of `values` by the set's values, in iteration order.
  void list(std::vector<std::uint32_t>& values) const;
  template <class Holds>
  [[nodiscard]] bool any_of(Holds holds) const {
    return std::ranges::any_of(table_, [&](std::uint32_t value) { return value < kDiscarded && holds(value); });
  }

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [table, num_values, num_taken] = self;
    form(table);
    if constexpr (Archive::kIsReading) {
      num_values = static_cast<std::size_t>(std::ranges::count_if(table, [](std::uint32_t value) { return value < kDiscarded; }));
      num_taken = table.size() - static_cast<std::size_t>(std::ranges::count(table, kEmpty));
      form.expect(std::has_single_bit(table.size()) && table.size() >= kSmallestSetTable && num_taken < table.size(),
                  "a set has a free slot");
    }
  }

 private:
  static constexpr std::uint32_t kEmpty = UINT32_MAX, kDiscarded = kEmpty - 1;
  void rebuild();

  std::vector<std::uint32_t> table_ = std::vector<std::uint32_t>(kSmallestSetTable, kEmpty);
  std::size_t num_values_ = 0;
  std::size_t num_taken_ = 0;  // slots with values or tombstones
};

}  // namespace quire
