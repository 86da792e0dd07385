#pragma once
// The rows of the worker's batch. Each row is free or belongs to a running request.
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "core/schedule/requests/request.h"
#include "quire/base/ids.h"

namespace quire {

// Last in, first out, so that the used rows stay close together. A released slot may be assigned again in the same plan, because the worker
// handles `released` before `admitted`.
class Slots {
 public:
  explicit Slots(std::uint32_t num_slots) : num_slots_(num_slots) {
    free_.reserve(num_slots);
    released_.reserve(num_slots);
    for (std::uint32_t i = num_slots; i > 0; --i) free_.push_back(Slot{i - 1});
  }

  // Called when the request begins to run.
  void take(Request& request) {
    QUIRE_CHECK(request.slot == kNoSlot, "a request has at most one slot");
    QUIRE_CHECK(!free_.empty(), "there is a free slot");
    request.slot = free_.back();
    free_.pop_back();
  }
  // Called when the request stops running.
  void release(Request& request) {
    QUIRE_CHECK(request.slot != kNoSlot, "a running request has a slot");
    QUIRE_CHECK(free_.size() < num_slots_, "a slot has one owner");
    free_.push_back(request.slot);
    released_.push_back(request.slot);
    request.slot = kNoSlot;
  }

  [[nodiscard]] std::span<const Slot> free() const { return free_; }
  // Returns the slots released since the last forget_released().
  [[nodiscard]] std::span<const Slot> released() const { return released_; }
  void forget_released() { released_.clear(); }

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [num_slots, free, released] = self;
    form(free, released);
  }

 private:
  std::uint32_t num_slots_;
  std::vector<Slot> free_;  // last in, first out
  std::vector<Slot> released_;
};

}  // namespace quire
