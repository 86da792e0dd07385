// What no call from outside brings about: one private field of the connector is spoiled, and the check that guards it stops the program.
// The rules that callers can break are in invariants_test.cpp.
#include <gtest/gtest.h>

#include "core/connect/composite_connector.h"
#include "core/connect/group_windows.h"
#include "core/connect/offload_driver.h"

namespace quire {
namespace {

using test::OffloadDriver;

// Two blocks of the second request are on their way here, none is on its way to the tier.
void begin_load(OffloadDriver& o) {
  o.add(1, 1, 10, 1);
  o.run();
  o.forget_cached();
  o.add(2, 1, 10, 1);
  o.plan();
}

TEST(SpoiledConnectDeathTest, WhatIsLoadedStaysAndItsRequestIsRemembered) {
  OffloadDriver o;
  begin_load(o);
  ASSERT_EQ(o.begun.size(), 1U);
  const TransferCompletion over{.transfer = o.begun[0].id};
  const std::vector<OffloadKey> keys = {o.key(2, 0), o.key(2, 1)};
  EXPECT_DEATH(
      {
        (void)o.connector->ledger_->complete_load(keys);
        o.connector->completed(over);
      },
      "what is loaded stays");
  EXPECT_DEATH(
      {
        o.connector->tracked_.clear();
        o.connector->completed(over);
      },
      "a request with a load is remembered");
  o.apply();
  o.run();
}

TEST(SpoiledConnectDeathTest, OnlyWhatWasAskedForIsStored) {
  OffloadDriver o;
  const OffloadKey key{};
  const OffloadSlot slot{0};
  const PreparedStore store{.keys = {&key, 1}, .slots = {&slot, 1}, .evicted = {}};
  EXPECT_DEATH(o.connector->add_stores({}, store, o.connector->tracked_[0]), "what is stored was asked for");
}

TEST(SpoiledConnectDeathTest, BlocksUnderWayAreCounted) {
  OffloadDriver o;
  begin_load(o);
  ASSERT_EQ(o.begun.size(), 1U);
  OffloadConnector& connector = *o.connector;
  const TransferCompletion over{.transfer = o.begun[0].id};
  EXPECT_DEATH(
      {
        connector.num_loading_blocks_ = 1;
        connector.completed(over);
      },
      "blocks on their way here are counted");
  EXPECT_DEATH(
      {
        connector.tracked_.at(2).num_loads = 0;
        connector.completed(over);
      },
      "loads of a request are counted");
  EXPECT_DEATH(
      {
        connector.moving_.begin()->second.direction = TransferDirection::store;
        connector.completed(over);
      },
      "blocks under way are counted");
  EXPECT_DEATH(
      {
        connector.moving_.begin()->second.places.clear();
        connector.drop_bad(connector.moving_.begin()->second, {}, connector.tracked_.at(2));
      },
      "a load has blocks");
  o.apply();
  o.run();
}

TEST(SpoiledConnectDeathTest, KeysArePlacesAndGroupsOfTheCache) {
  OffloadDriver o;
  o.add(1, 1, 10, 1);
  OffloadConnector& connector = *o.connector;
  const RequestView view = o.d.view(1);
  EXPECT_DEATH(connector.add_key(view, 1, 0), "a key belongs to a group");
  const OffloadKey one = o.key(1, 0);
  EXPECT_DEATH((void)connector.end_of_hit({&one, 1}, 0, 2, 0), "a key for each block of each group");
  const BlockId block{1};
  EXPECT_DEATH(connector.plan_load(view, 0, {&block, 1}, 0, 2), "a load fills blocks that the request has");
  EXPECT_DEATH(connector.plan_load(view, 0, {&block, 1}, 1, 1), "a load fills blocks that the request has");
  OffloadConnector::Tracked tracked{.next_stored = 1, .storing = {}};
  EXPECT_DEATH(connector.decide_stores(view, tracked, 0), "blocks are decided upon in order");
  o.run();
}

TEST(SpoiledConnectDeathTest, AMemberOwnsItsTransfers) {
  OffloadDriver inner;
  CompositeConnector composite({{.connector = std::shared_ptr<Connector>(std::shared_ptr<void>(), inner.connector.get())}});
  EXPECT_DEATH(
      {
        composite.owners_.emplace(7, 3);
        composite.completed({.transfer = TransferId{7}});
      },
      "a transfer belongs to a member");
}

TEST(SpoiledConnectDeathTest, WindowsAreOfGroupsAndLookForward) {
  auto windows = GroupWindows::create(test::sync_config());
  ASSERT_TRUE(windows.has_value());
  EXPECT_DEATH((void)windows->first_needed(1, 1), "a group of the cache");
  EXPECT_DEATH((void)windows->longest(2, 1, [](std::uint32_t, std::uint32_t) { return true; }), "what is wanted lies behind what is there");
}

}  // namespace
}  // namespace quire
