// What no call from outside brings about: one private field of the connector is spoiled, and the check that guards it stops the program.
// The rules that callers can break are in invariants_test.cpp.
#include <gtest/gtest.h>

#include "core/connect/offload_driver.h"

namespace quire {
namespace {

using test::OffloadDriver;

TEST(SpoiledConnectDeathTest, WhatIsLoadedStaysAndItsRequestIsRemembered) {
  OffloadDriver o;
  o.add(1, 1, 10, 1);
  o.run();
  o.forget_cached();
  o.add(2, 1, 10, 1);
  o.plan();
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

}  // namespace
}  // namespace quire
