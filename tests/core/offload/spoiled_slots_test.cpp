// The rest of spoiled_test.cpp: slots that are taken and given back against the rules, and ghosts without a free entry.
#include <gtest/gtest.h>

#include "core/offload/arc_policy.h"
#include "core/offload/offload_ledger.h"
#include "core/offload/offload_support.h"

namespace quire {
namespace {

using test::key;

TEST(SpoiledSlotsDeathTest, ASlotIsTakenWhileItIsFreeAndGivenBackWhileNobodyReads) {
  const std::unique_ptr<OffloadLedger> ledger = OffloadLedger::create({.num_slots = 2}).value();
  const OffloadKey one = key(1);
  ASSERT_TRUE(ledger->prepare_store({&one, 1}).has_value());
  ledger->complete_store({&one, 1});
  const std::uint32_t slot = ledger->index_.find(one);
  EXPECT_DEATH(ledger->begin_store(one, slot), "a slot that is taken was free");
  EXPECT_DEATH(
      {
        ledger->ref_counts_[slot] = -3;
        (void)ledger->prepare_load({&one, 1});
      },
      "what is loaded has been stored");
  ASSERT_TRUE(ledger->prepare_load({&one, 1}).has_value());
  EXPECT_DEATH(ledger->release(slot), "nobody reads a slot that is given back");
  EXPECT_DEATH(
      {
        ledger->num_taken_ = 3;
        (void)ledger->num_free();
      },
      "no more slots are taken than there are");
  EXPECT_DEATH(
      {
        ledger->num_taken_ = 2;
        (void)ledger->take_slot();
      },
      "free slots are counted before they are taken");
}

TEST(SpoiledSlotsDeathTest, GhostsHaveRoomForTwoLists) {
  GhostKeys ghosts(2);
  EXPECT_DEATH(
      {
        ghosts.free_.clear();
        ghosts.push(GhostKeys::List::b1, key(1));
      },
      "two lists have room for both");
}

}  // namespace
}  // namespace quire
