#include "core/offload/slot_queues.h"

#include "base/check.h"

namespace quire {

void SlotQueues::announce(Queue queue) {
  if (num_taken_ == announced_.size()) {
    announced_.clear();
    num_taken_ = 0;
  }
  announced_.push_back(queue);
  ++num_announced_[index(queue)];
}

SlotQueues::Queue SlotQueues::take_announced() {
  QUIRE_CHECK(num_taken_ < announced_.size(), "an inserted key was announced");
  const Queue queue = announced_[num_taken_++];
  QUIRE_CHECK(num_announced_[index(queue)] > 0, "num_announced_ includes each announced key");
  --num_announced_[index(queue)];
  return queue;
}

void SlotQueues::insert(std::uint32_t slot) {
  QUIRE_CHECK(slot < queue_of_.size(), "a filled slot is in the tier");
  queue_of_[slot] = take_announced();
  of(queue_of_[slot]).push_newest(slot);
}

void SlotQueues::replace(std::uint32_t old, std::uint32_t slot) {
  QUIRE_CHECK(old < queue_of_.size() && slot < queue_of_.size(), "a replaced slot and its replacement are in the tier");
  take_announced();
  queue_of_[slot] = queue_of_[old];
  of(queue_of_[old]).replace(old, slot);
}

void SlotQueues::insert_oldest(Queue queue, std::uint32_t slot) {
  QUIRE_CHECK(slot < queue_of_.size(), "a restored slot is in the tier");
  queue_of_[slot] = queue;
  of(queue).push_oldest(slot);
}

void SlotQueues::move(std::uint32_t slot, Queue queue) {
  QUIRE_CHECK(slot < queue_of_.size(), "a moved slot is in the tier");
  const bool evictable = is_evictable(slot);
  remove(slot);
  queue_of_[slot] = queue;
  of(queue).push_newest(slot);
  set_evictable(slot, evictable);
}

void SlotQueues::check_invariants() const {
  std::array<std::uint32_t, 2> num_left{};
  for (std::size_t i = num_taken_; i < announced_.size(); ++i) ++num_left[index(announced_[i])];
  QUIRE_CHECK(num_taken_ <= announced_.size() && num_left == num_announced_,
              "num_announced_ equals the number of announced keys that are not inserted yet");
  for (const Queue queue : {Queue::first, Queue::second}) {
    of(queue).check_invariants();
    all(queue).for_each([&](std::uint32_t slot) { QUIRE_CHECK(queue_of_[slot] == queue, "a slot records its queue"); });
  }
}

}  // namespace quire
