// Rules of use inside the ledger of a lower tier: whoever breaks one stops the program with a message. One test per class.
#include <gtest/gtest.h>

#include "core/offload/arc_policy.h"
#include "core/offload/lru_policy.h"
#include "core/offload/offload_ledger.h"
#include "core/offload/offload_support.h"

namespace quire {
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
  EXPECT_DEATH(list.push_back(1), "linked twice");
  EXPECT_DEATH(list.push_front(1), "linked twice");
  EXPECT_DEATH(list.remove(2), "removed twice");
  EXPECT_DEATH(list.insert_after(0, 2), "beside an element");
  EXPECT_DEATH(list.insert_before(0, 2), "beside an element");
}

TEST(OffloadInvariantDeathTest, AKeyHasOneEntry) {
  KeyIndex index(2);
  index.insert(named(1), 0);
  EXPECT_DEATH(index.insert(named(1), 1), "a key has one entry");
  EXPECT_DEATH(index.insert(named(2), 2), "a key has one entry");
  EXPECT_DEATH(index.remove(1), "carries no key");
}

TEST(OffloadInvariantDeathTest, OnlyResidentSlotsHaveAPlaceInTheOrder) {
  RecencyLinks links(4);
  RecencyOrder order(links);
  order.push_newest(1);
  EXPECT_DEATH(order.set_evictable(2, true), "only resident slots");
  order.set_evictable(1, true);
  EXPECT_DEATH(order.replace(1, 2), "what is being stored stays");
}

TEST(OffloadInvariantDeathTest, AnEventIsReadWhereThereIsOne) {
  auto ledger = OffloadLedger::create({.num_slots = 2, .enable_events = true}).value();
  EXPECT_DEATH((void)ledger->event(0), "an event that is there");
  const OffloadKey key[] = {named(1)};
  ASSERT_TRUE(ledger->prepare_store(key).has_value());
  ledger->complete_store(key);
  EXPECT_EQ(ledger->event(0).keys.size(), 1U);
  EXPECT_DEATH((void)ledger->event(1), "an event that is there");
}

TEST(OffloadInvariantDeathTest, AGhostIsRememberedOnce) {
  GhostKeys ghosts(2);
  ghosts.push(GhostKeys::List::b1, named(1));
  EXPECT_DEATH(ghosts.push(GhostKeys::List::b2, named(1)), "a key has one entry");
}

}  // namespace
}  // namespace quire
