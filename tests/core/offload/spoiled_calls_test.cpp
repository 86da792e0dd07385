// The rest of spoiled_test.cpp: parts of the ledger that are called as no other part calls them, about slots and entries that there are
// not.
#include <gtest/gtest.h>

#include <vector>

#include "core/offload/arc_paper_policy.h"
#include "core/offload/arc_policy.h"
#include "core/offload/offload_ledger.h"
#include "core/offload/offload_support.h"
#include "core/offload/recency_order.h"
#include "core/offload/reuse_filter.h"
#include "core/offload/s3fifo_policy.h"
#include "core/offload/slot_queues.h"

namespace quire {
namespace {

using test::key;

TEST(SpoiledOffloadCallsDeathTest, ListsHoldElementsOfTheirArray) {
  std::vector<IndexLink> links(2);
  IndexList list(links);
  EXPECT_DEATH(list.push_back(2), "an element of the array");
  list.push_back(1);
  EXPECT_DEATH(
      {
        list.size_ = 0;
        list.remove(1);
      },
      "a list with elements");
  KeyIndex index(2);
  EXPECT_DEATH((void)index.key_of(2), "asked about an entry of the index");
  EXPECT_DEATH(index.remove(0), "an entry that may carry a key");
}

TEST(SpoiledOffloadCallsDeathTest, GhostsAreFoundBeforeTheyAreAskedAbout) {
  GhostKeys ghosts(2);
  EXPECT_DEATH((void)ghosts.list_of(4), "asked about an entry that find\\(\\) gave");
  EXPECT_DEATH(ghosts.touch(4), "an entry that find\\(\\) gave");
  EXPECT_DEATH(ghosts.forget_oldest(GhostKeys::List::b1), "a list that is not empty has an oldest");
}

TEST(SpoiledOffloadCallsDeathTest, AnOrderHasEachSlotOnce) {
  RecencyLinks links(3);
  RecencyOrder order(links);
  order.push_newest(0);
  order.push_newest(1);
  EXPECT_DEATH(order.replace(2, 0), "a slot that is new takes the place of one that is not");
  EXPECT_DEATH(order.replace(0, 1), "a slot that is new takes the place of one that is not");
  EXPECT_DEATH(
      {
        order.evictable_.size_ = 2;
        order.set_evictable(0, true);
      },
      "slots that may go are among all");
}

TEST(SpoiledOffloadCallsDeathTest, QueuesHoldSlotsOfTheTier) {
  SlotQueues queues(2);
  EXPECT_DEATH(queues.remove(2), "a slot of the tier leaves");
  EXPECT_DEATH(queues.set_evictable(2, true), "a slot of the tier may go or not");
  EXPECT_DEATH(queues.move(2, SlotQueues::Queue::first), "a slot of the tier");
  queues.announce(SlotQueues::Queue::first);
  EXPECT_DEATH(
      {
        queues.num_announced_ = {};
        queues.insert(0);
      },
      "announced keys are counted");
}

TEST(SpoiledOffloadCallsDeathTest, PoliciesOrderSlotsOfTheTier) {
  const KeyIndex index(2);
  std::vector<std::uint32_t> slots;
  ArcPolicy arc(2, index);
  EXPECT_DEATH(arc.insert(2), "a slot of the tier becomes resident");
  EXPECT_DEATH(arc.touch(2, true), "a slot of the tier is touched");
  EXPECT_DEATH(arc.replace(1, 1), "one slot takes the place of another");
  EXPECT_DEATH(
      {
        arc.target_t1_size_ = 3;
        (void)arc.evict(1, {}, slots);
      },
      "the target is a number of slots");
  ArcPaperPolicy paper(2, index);
  EXPECT_DEATH((void)paper.evict(1, {}, slots), "no more go than come");
  EXPECT_DEATH(paper.move_target(GhostKeys::List::b2), "the ghost that came back is in its list");
  S3FifoPolicy fifo(2, index);
  EXPECT_DEATH((void)fifo.evict(1, {}, slots), "no more go than come");
  EXPECT_DEATH(fifo.use(2), "a slot of the tier");
}

TEST(SpoiledOffloadCallsDeathTest, ALedgerCountsItsSlots) {
  auto ledger = OffloadLedger::create({.num_slots = 2, .restores = true});
  ASSERT_TRUE(ledger.has_value());
  EXPECT_DEATH(
      {
        (*ledger)->num_unread_ = 0;
        (void)(*ledger)->restore(OffloadSlot{0}, nullptr);
      },
      "slots that nobody has told of are counted");
  EXPECT_DEATH(
      {
        (*ledger)->num_taken_ = 3;
        (void)(*ledger)->take_slot();
      },
      "slots were taken from the lowest on");
  auto filter = ReuseFilter::create(2, 2);
  ASSERT_TRUE(filter.has_value());
  const OffloadKey one = key(1);
  (*filter)->count({&one, 1});
  EXPECT_DEATH(
      {
        (*filter)->index_.size_ = 0;
        (void)(*filter)->take_entry();
      },
      "each entry in use has a key");
}

}  // namespace
}  // namespace quire
