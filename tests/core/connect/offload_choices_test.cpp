// What the offloading connector leaves: to a tier that is left out, to computing, for later, or for good where no place is to be had.
#include <gtest/gtest.h>

#include "core/connect/offload_driver.h"

namespace quire {
namespace {

using test::OffloadDriver;

TEST(OffloadConnector, ATierThatIsLeftOutIsNeitherReadNorWritten) {
  OffloadDriver o;
  o.add(1, 1, 10, 1);
  o.run();
  o.forget_cached();
  o.connector->serve({.loads = false, .stores = true});
  o.add(2, 1, 10, 1);
  EXPECT_EQ(o.plan().scheduled.size(), 1U) << "it does not wait";
  o.apply();
  o.run();
  o.forget_cached();
  o.connector->serve({.loads = true, .stores = false});
  o.add(3, 1, 18, 6);
  o.plan();
  ASSERT_EQ(o.begun.size(), 1U);
  EXPECT_EQ(o.begun[0].direction, TransferDirection::load);
  o.apply();
  o.plan();
  o.apply();
  EXPECT_EQ(o.num_kept(), 2U);
  o.connector->serve({});
  o.run();
  EXPECT_EQ(o.num_kept(), 5U) << "what was not stored meanwhile is stored, while its request runs";
}

// A block of four tokens has a byte. While a cost is not known, all is loaded.
TEST(OffloadConnector, WhatIsFasterToComputeIsComputed) {
  constexpr std::pair<double, double> kCosts[] = {{10.0, 0.0},  {10.0, -0.0}, {0.0, 41.0}, {0.0, 0.0},
                                                  {10.0, 39.0}, {10.0, 40.0}, {10.0, 41.0}};
  for (const auto& [bytes_per_s, tokens_per_s] : kCosts) {
    OffloadDriver o;
    o.add(1, 1, 10, 1);
    o.run();
    o.forget_cached();
    o.connector->set_costs({.load_bytes_per_s = bytes_per_s, .compute_tokens_per_s = tokens_per_s});
    o.add(2, 1, 10, 1);
    o.plan();
    const bool computes = bytes_per_s > 0.0 && tokens_per_s > 40.0;
    EXPECT_EQ(o.begun.size(), computes ? 0U : 1U) << bytes_per_s << ' ' << tokens_per_s;
    EXPECT_EQ(o.connector->counters().num_computed_tokens, computes ? 8U : 0U);
    o.apply();
    o.run();
  }
}

TEST(OffloadConnector, ALoadBehindOthersMayBeSlowerThanComputing) {
  OffloadDriver o;
  for (const std::uint64_t id : {1, 2}) {
    o.add(id, id, 10, 1);
    o.run();
  }
  o.forget_cached();
  o.connector->set_costs({.load_bytes_per_s = 10.0, .compute_tokens_per_s = 30.0});
  o.add(3, 1, 10, 1);
  o.add(4, 2, 10, 1);
  o.plan();
  ASSERT_EQ(o.begun.size(), 1U);
  EXPECT_EQ(o.begun[0].request, RequestId{3});
  EXPECT_EQ(o.connector->counters().num_computed_tokens, 8U);
  o.apply();
  o.run();
}

TEST(OffloadConnector, NoMoreThanSomeBlocksAreOnTheirWayToTheTier) {
  OffloadDriver o({.cpu_bytes_to_use = 32, .max_storing_blocks = 3});
  o.add(1, 1, 10, 1);
  o.add(2, 2, 10, 6);
  o.plan();
  o.apply();
  o.plan();
  ASSERT_EQ(o.begun.size(), 1U) << "two blocks are, and two more would be too many";
  EXPECT_EQ(o.connector->counters().num_held_back, 4U) << "in each of two steps";
  o.apply();
  o.run();
  EXPECT_EQ(o.num_kept(), 5U) << "there was room when the first were over";
  o.add(3, 3, 26, 1);
  o.run();
  EXPECT_EQ(o.num_kept(), 11U) << "more than may be under way, but alone";
}

// Two blocks of request 1 are on their way when it ends, and one more may be.
TEST(OffloadConnector, WhatWasHeldBackIsStoredAtTheEndOfTheLastRequest) {
  for (const bool is_alone : {true, false}) {
    OffloadDriver o({.cpu_bytes_to_use = 32, .max_storing_blocks = 3});
    o.add(1, 1, 10, 7);
    o.plan();
    o.apply_without_ends();
    for (int i = 0; i < 5; ++i) {
      o.plan();
      o.apply_without_ends();
    }
    EXPECT_EQ(o.connector->counters().num_stored, 3U);
    if (!is_alone) o.add(2, 2, 10, 7);
    o.plan();
    o.apply_without_ends();
    EXPECT_EQ(o.connector->counters().num_stored_at_end, is_alone ? 1U : 0U);
    o.run();
    EXPECT_EQ(o.num_kept(), is_alone ? 4U : 7U);
  }
}

// Of 32 places; two blocks of a prompt of ten tokens are full.
TEST(OffloadConnector, WhereAllLeavesWithoutHavingBeenFoundFewRequestsAreStored) {
  for (const bool thins : {false, true}) {
    OffloadDriver o({.cpu_bytes_to_use = 32, .thins_churn = thins});
    std::uint64_t id = 0;
    const auto ask = [&](std::uint64_t prompt, std::uint32_t num_tokens) {
      o.add(++id, prompt, num_tokens, 1);
      o.run();
    };
    const OffloadCounters& counters = o.connector->counters();
    while (counters.num_stored < 32 + ChurnGauge::kLeastWindow) ask(id + 1, 10);
    const std::uint64_t num_before = counters.num_stored, first = id + 1;
    for (int i = 0; i < 80; ++i) ask(id + 1, 10);
    EXPECT_EQ(counters.num_stored - num_before, thins ? 10U : 160U);
    EXPECT_EQ(counters.num_thinned, thins ? 150U : 0U);
    std::uint32_t num_found = 0;
    for (std::uint64_t prompt = first + 64; prompt < first + 80; ++prompt) {
      o.forget_cached();
      const OffloadCounters before = counters;
      ask(prompt, 18);
      if (counters.num_loaded == before.num_loaded) continue;
      ++num_found;
      EXPECT_EQ(counters.num_stored - before.num_stored, 2U) << "what goes on behind something found is stored";
    }
    // Where all are stored, each of these pushes the next one out.
    EXPECT_EQ(num_found, 1U);
  }
}

// Until all that is stored leaves without having been found, and the next request is the one in sixteen that is stored; what its id may be.
std::uint64_t churn(OffloadDriver& o) {
  std::uint64_t id = 100;
  for (; o.connector->counters().num_thinned < 2 * (ChurnGauge::kEvery - 1); ++id) {
    o.add(id, id, 10, 1);
    o.run();
  }
  return id;
}

// Of three tokens and two: the one block is full when its request has ended.
TEST(OffloadConnector, WhatIsFullOnlyAtTheEndIsLeftOutToo) {
  OffloadDriver o({.cpu_bytes_to_use = 32, .max_storing_blocks = 3, .thins_churn = true}, test::async_config());
  const auto ask = [&](std::uint64_t id) {
    o.add(id, id, 3, 2);
    o.plan();
    o.plan();
    o.apply();
    o.apply();
    o.run();
  };
  ask(1);
  EXPECT_EQ(o.connector->counters().num_stored_at_end, 1U) << "there is room";
  const std::uint64_t id = churn(o);
  o.add(id, id, 10, 1);
  o.run();
  ask(2);
  EXPECT_EQ(o.connector->counters().num_stored_at_end, 1U);
}

// Its first block was there, the second was to be loaded and is bad: one place is free, and one block is to be stored at the end.
TEST(OffloadConnector, AtTheEndWhatHasRoomPushesNothingOut) {
  OffloadDriver o({.cpu_bytes_to_use = 32, .max_storing_blocks = 3, .thins_churn = true}, test::recompute_config());
  const std::uint64_t kept = churn(o);
  o.add(kept, kept, 10, 1);
  o.run();
  o.forget_cached();
  o.add(1, kept, 5, 1);
  o.run();
  o.add(2, kept, 10, 2);
  o.plan();
  ASSERT_EQ(o.begun.size(), 1U);
  EXPECT_EQ(o.begun[0].blocks.size(), 1U);
  o.connector->serve({.loads = true, .stores = false});
  o.apply(TransferOutcome::failed);
  EXPECT_EQ(o.connector->ledger().num_free(), 1U);
  o.plan();
  o.apply();
  o.plan();
  o.connector->serve({});
  o.apply();
  EXPECT_EQ(o.connector->counters().num_stored_at_end, 1U);
  o.run();
}

TEST(OffloadConnector, WhatJustHasRoomPushesNothingOut) {
  OffloadDriver o({.cpu_bytes_to_use = 32, .thins_churn = true});
  const std::uint64_t id = churn(o);
  o.add(id, id, 10, 1);
  o.run();
  const std::vector<OffloadKey> keys = o.connector->ledger().resident_keys();
  for (const OffloadKey& key : std::span(keys).first(2)) o.connector->missed_outside(key);
  ASSERT_EQ(o.connector->ledger().num_free(), 2U);
  const OffloadCounters before = o.connector->counters();
  for (const std::uint64_t next : {id + 1, id + 2}) {
    o.add(next, next, 10, 1);
    o.run();
    EXPECT_EQ(o.connector->counters().num_stored, before.num_stored + 2) << "two blocks had room";
    EXPECT_EQ(o.connector->counters().num_thinned, before.num_thinned + (next == id + 1 ? 0 : 2));
  }
}

// The store of the one before is under way meanwhile.
TEST(OffloadConnector, WhatIsLeftOutCountsOnceWhileItsRequestRunsAndIsNotHeldBackBesides) {
  OffloadDriver o({.cpu_bytes_to_use = 32, .max_storing_blocks = 1, .thins_churn = true});
  const std::uint64_t id = churn(o);
  const OffloadCounters& counters = o.connector->counters();
  const OffloadCounters before = counters;
  o.add(id, id, 10, 1);
  o.plan();
  o.apply_without_ends();
  EXPECT_EQ(counters.num_stored - before.num_stored, 2U);
  o.add(id + 1, id + 1, 10, 9);
  while (o.d.known(id + 1)) {
    o.plan();
    o.apply_without_ends();
  }
  EXPECT_EQ(counters.num_stored - before.num_stored, 2U);
  EXPECT_EQ(counters.num_thinned - before.num_thinned, 4U) << "the blocks of eighteen tokens";
  EXPECT_EQ(counters.num_held_back - before.num_held_back, 0U);
  o.run();
}

// The eighth token ends it, and the pass that would compute it is under way.
TEST(OffloadConnector, AtTheEndABlockWhoseLastTokenWasJustSampledIsNotStored) {
  OffloadDriver o({.cpu_bytes_to_use = 32, .max_storing_blocks = 3}, test::async_config());
  o.add(1, 1, 6, 9);
  for (int i = 0; i < 2; ++i) o.plan();
  o.d.apply();
  o.plan();
  ASSERT_EQ(o.d.view(1).num_computed_tokens, 8U);
  o.d.apply({{1, {test::kStop}}});
  EXPECT_EQ(o.connector->counters().num_stored, 1U);
  EXPECT_EQ(o.connector->counters().num_stored_at_end, 0U);
  o.apply();
  o.run();
  EXPECT_EQ(o.num_kept(), 1U);
}

// As many as may be are open: a store is tried again while the request holds its blocks.
TEST(OffloadConnector, AStoreThatFindsNoPlaceAmongTheOpenOnesIsTriedAgain) {
  CoreConfig config = test::sync_config();
  config.limits.max_open_transfers = 1;
  OffloadDriver o({.cpu_bytes_to_use = 32}, config);
  o.add(1, 1, 10, 1);
  o.add(2, 2, 10, 1);
  o.plan();
  o.apply();
  o.plan();
  EXPECT_EQ(o.begun.size(), 1U);
  o.apply();
  EXPECT_FALSE(o.d.core->all_blocks_free());
  o.plan();
  ASSERT_EQ(o.begun.size(), 1U);
  EXPECT_EQ(o.begun[0].request, RequestId{2});
  o.apply();
  o.run();
  EXPECT_EQ(o.num_kept(), 4U);
}

TEST(OffloadConnector, AStoreThatFindsNoPlaceAndLosesItsBlocksIsGivenUp) {
  CoreConfig config = test::sync_config(7);
  config.scheduler.reserve_full_isl = false;
  config.limits.max_open_transfers = 1;
  OffloadDriver o({.cpu_bytes_to_use = 32}, config);
  o.add(1, 1, 12, 4);
  o.add(2, 2, 12, 4);
  o.plan();
  o.apply();
  ASSERT_EQ(o.plan().preempted.size(), 1U);
  EXPECT_EQ(o.begun.size(), 1U);
  EXPECT_EQ(o.connector->counters().num_failed_stores, 3U);
  EXPECT_FALSE(o.connector->ledger().contains(o.key(2, 0)));
  o.apply();
  o.run();
}

TEST(OffloadConnector, AFullTierOfBlocksInTransferTakesNothing) {
  OffloadDriver o({.cpu_bytes_to_use = 2});
  o.add(1, 1, 9, 4);
  o.add(2, 2, 9, 4);
  o.plan();
  EXPECT_EQ(o.connector->counters().num_stored, 2U);
  EXPECT_EQ(o.connector->counters().num_without_room, 2U);
  o.apply();
  o.run();
}

}  // namespace
}  // namespace quire
