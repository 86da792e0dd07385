// Tests which blocks the offloading connector does not transfer: it skips disabled tiers, computes blocks instead, defers stores and drops
// stores that get no slot.
#include <gtest/gtest.h>

#include "core/connect/offload_driver.h"

namespace quire::test {
namespace {

TEST(OffloadConnector, NeitherLoadsNorStoresWhileTheTierIsDisabled) {
  OffloadDriver o;
  o.add(1, 1, 10, 1);
  o.run();
  o.forget_cached();
  o.connector->serve({.loads = false, .stores = true});
  o.add(2, 1, 10, 1);
  EXPECT_EQ(o.plan().scheduled.size(), 1U) << "request 2 does not wait";
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
  EXPECT_EQ(o.num_kept(), 5U) << "blocks that were skipped are stored while their request runs";
}

// A block of four tokens has one byte. Blocks are loaded while a cost is unknown.
TEST(OffloadConnector, ComputesBlocksWhenComputingIsFasterThanLoading) {
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

TEST(OffloadConnector, ComputesBlocksWhenALoadWouldWaitTooLongForOthers) {
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

TEST(OffloadConnector, LimitsTheBlocksThatAreBeingStored) {
  OffloadDriver o({.cpu_bytes_to_use = 32, .max_storing_blocks = 3});
  o.add(1, 1, 10, 1);
  o.add(2, 2, 10, 6);
  o.plan();
  o.apply();
  o.plan();
  ASSERT_EQ(o.begun.size(), 1U) << "two blocks are being stored, and two more would exceed the limit";
  EXPECT_EQ(o.connector->counters().num_deferred_by_limit, 4U) << "two blocks in each of two steps";
  o.apply();
  o.run();
  EXPECT_EQ(o.num_kept(), 5U) << "the other stores began when the first ones ended";
  o.add(3, 3, 26, 1);
  o.run();
  EXPECT_EQ(o.num_kept(), 11U) << "a store above the limit runs alone";
}

// Two blocks of request 1 are being stored when it ends, and the limit allows one more.
TEST(OffloadConnector, StoresDeferredBlocksWhenTheLastRequestEnds) {
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
    EXPECT_EQ(o.connector->counters().num_stored_when_idle, is_alone ? 1U : 0U);
    o.run();
    EXPECT_EQ(o.num_kept(), is_alone ? 4U : 7U);
  }
}

// The tier has 32 slots. A prompt of ten tokens has two full blocks.
TEST(OffloadConnector, StoresFewRequestsWhenTheTierChurns) {
  for (const bool thins : {false, true}) {
    OffloadDriver o({.cpu_bytes_to_use = 32, .skips_stores_on_churn = thins});
    std::uint64_t id = 0;
    const auto ask = [&](std::uint64_t prompt, std::uint32_t num_tokens) {
      o.add(++id, prompt, num_tokens, 1);
      o.run();
    };
    const OffloadCounters& counters = o.connector->counters();
    while (counters.num_stored < 32 + ChurnDetector::kLeastWindow) ask(id + 1, 10);
    const std::uint64_t num_before = counters.num_stored, first = id + 1;
    for (int i = 0; i < 80; ++i) ask(id + 1, 10);
    EXPECT_EQ(counters.num_stored - num_before, thins ? 10U : 160U);
    EXPECT_EQ(counters.num_skipped_for_churn, thins ? 150U : 0U);
    std::uint32_t num_found = 0;
    for (std::uint64_t prompt = first + 64; prompt < first + 80; ++prompt) {
      o.forget_cached();
      const OffloadCounters before = counters;
      ask(prompt, 18);
      if (counters.num_loaded == before.num_loaded) continue;
      ++num_found;
      EXPECT_EQ(counters.num_stored - before.num_stored, 2U) << "blocks after a loaded prefix are stored";
    }
    // If all requests are stored, each of these evicts the next one.
    EXPECT_EQ(num_found, 1U);
  }
}

// Adds requests until the tier churns and the next request is the one in sixteen that is stored. Returns a free id for that request.
std::uint64_t churn(OffloadDriver& o) {
  std::uint64_t id = 100;
  for (; o.connector->counters().num_skipped_for_churn < 2 * (ChurnDetector::kEvery - 1); ++id) {
    o.add(id, id, 10, 1);
    o.run();
  }
  return id;
}

// The request has three prompt tokens and two outputs, so its one block is full when it ends.
TEST(OffloadConnector, SkipsBlocksThatBecomeFullAtTheEndWhenTheTierChurns) {
  OffloadDriver o({.cpu_bytes_to_use = 32, .max_storing_blocks = 3, .skips_stores_on_churn = true}, async_config());
  const auto ask = [&](std::uint64_t id) {
    o.add(id, id, 3, 2);
    o.plan();
    o.plan();
    o.apply();
    o.apply();
    o.run();
  };
  ask(1);
  EXPECT_EQ(o.connector->counters().num_stored_when_idle, 1U) << "the tier has a free slot";
  const std::uint64_t id = churn(o);
  o.add(id, id, 10, 1);
  o.run();
  ask(2);
  EXPECT_EQ(o.connector->counters().num_stored_when_idle, 1U);
}

// The first block is cached and the load of the second fails. One slot is free and one block is stored at the end.
TEST(OffloadConnector, StoresAtTheEndIntoAFreeSlotWhenTheTierChurns) {
  OffloadDriver o({.cpu_bytes_to_use = 32, .max_storing_blocks = 3, .skips_stores_on_churn = true}, recompute_config());
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
  EXPECT_EQ(o.connector->counters().num_stored_when_idle, 1U);
  o.run();
}

TEST(OffloadConnector, StoresIntoFreeSlotsWhenTheTierChurns) {
  OffloadDriver o({.cpu_bytes_to_use = 32, .skips_stores_on_churn = true});
  const std::uint64_t id = churn(o);
  o.add(id, id, 10, 1);
  o.run();
  const std::vector<OffloadKey> keys = o.connector->ledger().resident_keys();
  for (const OffloadKey& key : std::span(keys).first(2)) o.connector->on_query_miss(key);
  ASSERT_EQ(o.connector->ledger().num_free(), 2U);
  const OffloadCounters before = o.connector->counters();
  for (const std::uint64_t next : {id + 1, id + 2}) {
    o.add(next, next, 10, 1);
    o.run();
    EXPECT_EQ(o.connector->counters().num_stored, before.num_stored + 2) << "two blocks had free slots";
    EXPECT_EQ(o.connector->counters().num_skipped_for_churn, before.num_skipped_for_churn + (next == id + 1 ? 0 : 2));
  }
}

// The store of the previous request is in flight meanwhile.
TEST(OffloadConnector, CountsASkippedBlockOnceAndNotAsDeferred) {
  OffloadDriver o({.cpu_bytes_to_use = 32, .max_storing_blocks = 1, .skips_stores_on_churn = true});
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
  EXPECT_EQ(counters.num_skipped_for_churn - before.num_skipped_for_churn, 4U) << "four blocks of eighteen tokens";
  EXPECT_EQ(counters.num_deferred_by_limit - before.num_deferred_by_limit, 0U);
  o.run();
}

// The eighth token ends the request while the step that computes it is in flight.
TEST(OffloadConnector, DoesNotStoreABlockAtTheEndWhenItsLastTokenWasJustSampled) {
  OffloadDriver o({.cpu_bytes_to_use = 32, .max_storing_blocks = 3}, async_config());
  o.add(1, 1, 6, 9);
  for (int i = 0; i < 2; ++i) o.plan();
  o.d.apply();
  o.plan();
  ASSERT_EQ(o.d.view(1).num_computed_tokens, 8U);
  o.d.apply({{1, {kStop}}});
  EXPECT_EQ(o.connector->counters().num_stored, 1U);
  EXPECT_EQ(o.connector->counters().num_stored_when_idle, 0U);
  o.apply();
  o.run();
  EXPECT_EQ(o.num_kept(), 1U);
}

// The limit of open transfers is reached. The store is tried again while the request holds its blocks.
TEST(OffloadConnector, RetriesAStoreWhenTooManyTransfersAreOpen) {
  CoreConfig config = sync_config();
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

TEST(OffloadConnector, DropsAStoreThatWaitsWhenItsBlocksAreFreed) {
  CoreConfig config = sync_config(7);
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

TEST(OffloadConnector, StoresNothingWhenAllSlotsAreInTransfer) {
  OffloadDriver o({.cpu_bytes_to_use = 2});
  o.add(1, 1, 9, 4);
  o.add(2, 2, 9, 4);
  o.plan();
  EXPECT_EQ(o.connector->counters().num_stored, 2U);
  EXPECT_EQ(o.connector->counters().num_without_slot, 2U);
  o.apply();
  o.run();
}

}  // namespace
}  // namespace quire::test
