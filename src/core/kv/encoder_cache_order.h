#pragma once
// The order in which CPython walks a set of small integers: slot by slot through an open-addressed table (Objects/setobject.c). vLLM frees
// a request's encoder outputs in this order, and eviction follows it.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace quire {

inline constexpr std::size_t kSmallestSetTable = 8;

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

// Such a set that lives on: what was discarded leaves a mark in its table, and shows in the order of what is added later. Values are below
// kDiscarded.
class SmallIntSet {
 public:
  void add(std::uint32_t value);
  void discard(std::uint32_t value);
  [[nodiscard]] bool empty() const { return num_values_ == 0; }
  // Stops the program if a value cannot be found, or something is counted wrongly.
  void check_invariants() const;
  // Clears `values` and fills it, in the order of the walk.
  void list(std::vector<std::uint32_t>& values) const;
  template <class Holds>
  [[nodiscard]] bool any_of(Holds holds) const {
    return std::ranges::any_of(table_, [&](std::uint32_t value) { return value < kDiscarded && holds(value); });
  }

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
    [[maybe_unused]] auto& [table, num_values, num_taken] = self;
    form(table);
    if constexpr (Form::kReads) {
      num_values = static_cast<std::size_t>(std::ranges::count_if(table, [](std::uint32_t value) { return value < kDiscarded; }));
      num_taken = table.size() - static_cast<std::size_t>(std::ranges::count(table, kEmpty));
      form.expect(std::has_single_bit(table.size()) && table.size() >= kSmallestSetTable && num_taken < table.size(), "a set has room");
    }
  }

 private:
  static constexpr std::uint32_t kEmpty = UINT32_MAX, kDiscarded = kEmpty - 1;
  void rebuild();

  std::vector<std::uint32_t> table_ = std::vector<std::uint32_t>(kSmallestSetTable, kEmpty);
  std::size_t num_values_ = 0;
  std::size_t num_taken_ = 0;  // slots with values or marks
};

}  // namespace quire
