// Death tests of the preconditions inside the ledger of a lower tier. A violation stops the program with a message.
#include <gtest/gtest.h>

#include "core/offload/arc_policy.h"
#include "core/offload/lru_policy.h"
#include "core/offload/offload_ledger.h"
#include "core/offload/offload_support.h"

namespace quire::test {
namespace {

OffloadKey named(std::uint8_t value) {
  OffloadKey key;
  key.hash[0] = value;
  return key;
}

TEST(OffloadInvariantDeathTest, AnIndexIsInAListOnce) {
  std::vector<IndexLink> links(4);
  IndexList list(links);
  list.push_back(1);
  EXPECT_DEATH(list.push_back(1), "the element is in no list");
  EXPECT_DEATH(list.push_front(1), "the element is in no list");
  EXPECT_DEATH(list.remove(2), "the element is in a list");
  EXPECT_DEATH(list.insert_after(0, 2), "the neighbour is in a list");
  EXPECT_DEATH(list.insert_before(0, 2), "the neighbour is in a list");
}

TEST(OffloadInvariantDeathTest, AKeyHasOneEntry) {
  KeyIndex index(2);
  index.insert(named(1), 0);
  EXPECT_DEATH(index.insert(named(1), 1), "an inserted key has no entry yet");
  EXPECT_DEATH(index.insert(named(2), 2), "an inserted key has no entry yet");
  EXPECT_DEATH(index.remove(1), "a removed entry has a key");
}

TEST(OffloadInvariantDeathTest, OnlyResidentSlotsAreInTheOrder) {
  RecencyLinks links(4);
  RecencyOrder order(links);
  order.push_newest(1);
  EXPECT_DEATH(order.set_evictable(2, true), "the slot is resident");
  order.set_evictable(1, true);
  EXPECT_DEATH(order.replace(1, 2), "a replaced slot is not evictable");
}

TEST(OffloadInvariantDeathTest, AnEventIndexIsInRange) {
  auto ledger = OffloadLedger::create({.num_slots = 2, .enable_events = true}).value();
  EXPECT_DEATH((void)ledger->event(0), "the event exists");
  const OffloadKey key[] = {named(1)};
  ASSERT_TRUE(ledger->prepare_store(key).has_value());
  ledger->complete_store(key);
  EXPECT_EQ(ledger->event(0).keys.size(), 1U);
  EXPECT_DEATH((void)ledger->event(1), "the event exists");
}

TEST(OffloadInvariantDeathTest, AGhostIsRememberedOnce) {
  GhostKeys ghosts(2);
  ghosts.push(GhostKeys::List::b1, named(1));
  EXPECT_DEATH(ghosts.push(GhostKeys::List::b2, named(1)), "an inserted key has no entry yet");
}

}  // namespace
}  // namespace quire::test
