#pragma once
// The rows of the worker's batch: each is free or a running request's.
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "core/schedule/requests/request.h"
#include "quire/base/ids.h"

namespace quire {

// Last in, first out, so that the rows in use stay few and near each other. A slot that is released may be given out in the same plan: the
// worker handles `released` before `admitted`.
class Slots {
 public:
  explicit Slots(std::uint32_t num_slots) : num_slots_(num_slots) {
    free_.reserve(num_slots);
    released_.reserve(num_slots);
    for (std::uint32_t i = num_slots; i > 0; --i) free_.push_back(Slot{i - 1});
  }

  // When it begins to run.
  void take(Request& request) {
    QUIRE_CHECK(request.slot == kNoSlot, "one row of the batch for each request");
    QUIRE_CHECK(!free_.empty(), "a slot for each that may run");
    request.slot = free_.back();
    free_.pop_back();
  }
  // When it stops running.
  void release(Request& request) {
    QUIRE_CHECK(request.slot != kNoSlot, "who runs has a slot");
    QUIRE_CHECK(free_.size() < num_slots_, "a slot has one owner");
    free_.push_back(request.slot);
    released_.push_back(request.slot);
    request.slot = kNoSlot;
  }

  [[nodiscard]] std::span<const Slot> free() const { return free_; }
  // Since the last forget_released().
  [[nodiscard]] std::span<const Slot> released() const { return released_; }
  void forget_released() { released_.clear(); }

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
    [[maybe_unused]] auto& [num_slots, free, released] = self;
    form(free, released);
  }

 private:
  std::uint32_t num_slots_;
  std::vector<Slot> free_;  // last in, first out
  std::vector<Slot> released_;
};

}  // namespace quire
