// Tests the parts of eviction policies without a ledger.
#include <gtest/gtest.h>

#include "core/offload/arc_policy.h"
#include "core/offload/offload_support.h"
#include "core/offload/slot_queues.h"

namespace quire::test {
namespace {

using Slots = std::vector<std::uint32_t>;

Slots all(const SlotQueues& queues, SlotQueues::Queue queue) {
  Slots slots;
  queues.all(queue).for_each([&](std::uint32_t slot) { slots.push_back(slot); });
  return slots;
}

TEST(SlotQueues, ReplaceConsumesTheAnnouncedQueue) {
  SlotQueues queues(4);
  using enum SlotQueues::Queue;
  for (const SlotQueues::Queue queue : {first, first, second}) queues.announce(queue);
  queues.insert(0);
  queues.replace(0, 1);
  EXPECT_EQ(queues.size(first), 1U);
  EXPECT_EQ(queues.size(second), 1U) << "the announced slot is counted";
  queues.insert(2);
  EXPECT_EQ(all(queues, first), Slots{1});
  EXPECT_EQ(all(queues, second), Slots{2});
  EXPECT_EQ(queues.num_resident(), 2U);
  queues.check_invariants();
}

TEST(ArcPolicy, StartsASlotInT1WhateverItHeldBefore) {
  KeyIndex index(2);
  ArcPolicy policy(2, index);
  index.insert(key(7), 0);
  index.insert(key(8), 1);
  const auto put_into_t2 = [&](std::uint32_t slot) {
    policy.insert(slot);
    policy.touch(slot, true);
  };
  put_into_t2(0);
  put_into_t2(1);
  ASSERT_EQ(numbers(policy.snapshot().lists[1]), (Numbers{7, 8}));
  policy.remove(0);
  policy.remove(1);
  policy.insert_oldest(0);
  policy.insert(1);
  policy.check_invariants();
  policy.set_evictable(0, true);
  policy.touch(0, true);
  const std::vector<std::vector<OffloadKey>> lists = policy.snapshot().lists;
  EXPECT_EQ(numbers(lists[0]), Numbers{8});
  EXPECT_EQ(numbers(lists[1]), Numbers{7}) << "a slot that is used again leaves T1";
  EXPECT_TRUE(policy.is_evictable(0));
  policy.check_invariants();
}

}  // namespace
}  // namespace quire::test
