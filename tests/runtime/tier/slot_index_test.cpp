#include "runtime/tier/slot_index.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {
namespace {

RestoredBlock restored(std::uint32_t place, std::uint64_t number, std::uint64_t sequence) {
  return {.place = place, .bytes = 1, .name = tier_name(number), .sequence = sequence};
}

TEST(SlotIndexTest, HandsOutSlotsOnceTheyAreRestored) {
  SlotIndex index;
  EXPECT_EQ(index.take(), std::nullopt);
  index.add_restored(2, {});
  EXPECT_EQ(index.take(), 0U);
  EXPECT_EQ(index.take(), 1U);
  EXPECT_EQ(index.take(), std::nullopt) << "both slots are being written";
  index.release(1);
  EXPECT_EQ(index.take(), 1U);
  index.stored(tier_name(5), 1);
  EXPECT_EQ(index.find(tier_name(5)), 1U);
  EXPECT_EQ(index.find(tier_name(6)), std::nullopt);
  EXPECT_EQ(index.take(), 1U) << "only this slot can be evicted";
  EXPECT_EQ(index.find(tier_name(5)), std::nullopt);
}

TEST(SlotIndexTest, EvictsTheOldestRestoredBlockFirstUnlessItIsUsed) {
  SlotIndex index;
  index.add_restored(2, std::vector{restored(0, 10, 7), restored(1, 11, 3)});
  index.add_restored(4, std::vector{restored(2, 12, 5), restored(3, 13, 9)});
  EXPECT_EQ(index.find(tier_name(11)), 1U);
  EXPECT_EQ(index.take(), 2U);
  EXPECT_EQ(index.take(), 0U);
  EXPECT_EQ(index.take(), 3U);
  EXPECT_EQ(index.take(), 1U);
}

TEST(SlotIndexTest, KeepsTheNewerOfTwoSlotsWithOneKey) {
  for (const bool in_one_call : {true, false}) {
    SlotIndex index;
    const std::vector found{restored(0, 10, 7), restored(1, 10, 3), restored(2, 10, 8), restored(3, 11, 8)};
    if (in_one_call) {
      index.add_restored(5, found);
    } else {
      index.add_restored(2, std::span(found).first(2));
      index.add_restored(5, std::span(found).subspan(2));
    }
    EXPECT_EQ(index.find(tier_name(10)), 2U);
    EXPECT_EQ(index.find(tier_name(11)), std::nullopt) << "slot 3 has the same sequence number as slot 2, so one of them is dropped";
    std::vector<std::uint32_t> places;
    while (places.size() < 5) places.push_back(index.take().value());
    EXPECT_EQ(places.back(), 2U) << "free slots are handed out before occupied ones";
    std::ranges::sort(places);
    EXPECT_EQ(places, (std::vector<std::uint32_t>{0, 1, 2, 3, 4})) << "each slot once";
  }
}

TEST(SlotIndexTest, HandsOutTheLowestSlotOfAnOlderBlockFirst) {
  SlotIndex index;
  index.add_restored(2, std::vector{restored(0, 10, 7)});
  index.add_restored(5, std::vector{restored(2, 11, 3), restored(3, 11, 9)});
  EXPECT_EQ(index.find(tier_name(11)), 3U);
  for (const std::uint32_t place : {2U, 4U, 1U}) EXPECT_EQ(index.take(), place);
}

TEST(SlotIndexTest, UsesTheLaterSlotOfTwoWithOneSequenceNumberAndKey) {
  SlotIndex index;
  index.add_restored(2, std::vector{restored(0, 10, 7), restored(1, 10, 7)});
  EXPECT_EQ(index.find(tier_name(10)), 1U);
  EXPECT_EQ(index.size(), 1U);
  EXPECT_EQ(index.take(), 0U);
}

TEST(SlotIndexTest, EvictsTheLeastRecentlyUsedBlock) {
  SlotIndex index;
  index.add_restored(3, {});
  for (std::uint64_t number = 0; number < 3; ++number) index.stored(tier_name(number), index.take().value());
  EXPECT_EQ(index.find(tier_name(0)), 0U);
  EXPECT_EQ(index.find(tier_name(2)), 2U);
  EXPECT_EQ(index.find(tier_name(0)), 0U);
  EXPECT_EQ(index.slot_of(tier_name(1)), 1U) << "this is no use";
  for (const std::uint32_t place : {1U, 2U, 0U}) EXPECT_EQ(index.take(), place);
  EXPECT_EQ(index.take(), std::nullopt);
}

TEST(SlotIndexTest, FreesTheSlotOfAForgottenKey) {
  SlotIndex index;
  index.add_restored(2, std::vector{restored(0, 10, 7), restored(1, 11, 3)});
  index.forget(tier_name(10));
  index.forget(tier_name(10));
  EXPECT_EQ(index.size(), 1U);
  EXPECT_EQ(index.take(), 0U);
}

// Each slot is in exactly one state: free, held or being written.
TEST(SlotIndexTest, NeverHandsOutASlotTwiceUnderRandomUse) {
  Random random(3);
  SlotIndex index;
  index.add_restored(20, {});
  std::vector<std::uint32_t> written;
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t number = random.below(30);
    const std::uint64_t kind = random.below(4);
    if (kind == 0) {
      if (const auto place = index.take()) {
        EXPECT_EQ(std::ranges::count(written, *place), 0);
        written.push_back(*place);
      }
    } else if (kind == 1 && !written.empty()) {
      random.chance(0.8) ? index.stored(tier_name(number), written.back()) : index.release(written.back());
      written.pop_back();
    } else if (kind == 2) {
      const auto place = index.find(tier_name(number));
      if (place) EXPECT_EQ(std::ranges::count(written, *place), 0);
    } else if (random.chance(0.1)) {
      index.forget(tier_name(number));
    }
    EXPECT_LE(index.size() + written.size(), 20U);
  }
}

}  // namespace
}  // namespace quire::test
