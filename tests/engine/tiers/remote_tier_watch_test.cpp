// Tests what the tier of a shared store counts, which blocks it removes from the store, and when it leaves the store out.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "engine/tiers/hashed_request.h"
#include "engine/tiers/remote_tier.h"
#include "engine/tiers/scripted_shared_store.h"
#include "engine/tiers/tier_check.h"
#include "runtime/remote/remote_value.h"

namespace quire {
namespace {

using test::small_key;

class RemoteTierWatch : public testing::Test {
 protected:
  std::shared_ptr<RemoteTier> open(const RemoteTierOptions& options = {.policy = KvTierPolicy::exact}) {
    return RemoteTier::open_on(store_, options, test::small_config()).value();
  }
  static RemoteConnector& connector_of(RemoteTier& tier) { return dynamic_cast<RemoteConnector&>(tier.connector()); }

  const std::shared_ptr<test::ScriptedSharedStore> store_ = std::make_shared<test::ScriptedSharedStore>();
};

TEST_F(RemoteTierWatch, CountsWhatTheStoreCounts) {
  store_->problem = std::string(300, 'p');
  store_->count([](SharedStoreStats& stats) {
    stats = {.num_stored = 1,
             .num_loaded = 2,
             .bytes_stored = 3,
             .bytes_loaded = 4,
             .num_answered_loads = 5,
             .bytes_read = 6,
             .num_absent = 7,
             .num_refused = 0,
             .num_cancelled = 9,
             .num_failed_stores = 0,
             .num_failed_loads = 1,
             .num_asked = 12,
             .num_found = 13};
  });
  const auto tier = open({.name = "shared", .policy = KvTierPolicy::exact, .budget_bytes = 640, .place_bytes = 80, .holds_blocks = false});
  test::add_key(connector_of(*tier).offload(), 1);
  const KvTierStats stats = tier->stats();
  EXPECT_EQ(stats.name, "shared");
  EXPECT_EQ(stats.budget_bytes, 640U);
  EXPECT_EQ(stats.place_bytes, 80U);
  EXPECT_EQ(stats.num_places, 8U);
  EXPECT_EQ(stats.num_used_slots, 1U);
  EXPECT_EQ(stats.num_unread_slots, 0U);
  EXPECT_EQ(stats.num_stored_blocks, 1U);
  EXPECT_EQ(stats.num_loaded_blocks, 2U);
  EXPECT_EQ(stats.bytes_stored, 3U);
  EXPECT_EQ(stats.bytes_loaded, 4U);
  EXPECT_EQ(stats.num_vanished_blocks, 7U);
  EXPECT_EQ(stats.num_failed_blocks, 1U);
  EXPECT_EQ(stats.num_queried_blocks, 12U);
  EXPECT_EQ(stats.num_found_blocks, 13U);
  EXPECT_EQ(stats.problem, std::string(200, 'p'));
  EXPECT_FALSE(stats.loads_left_out || stats.stores_left_out);
  EXPECT_FALSE(tier->holds_blocks());
  EXPECT_EQ(tier->policy(), KvTierPolicy::exact);
  store_->count([](SharedStoreStats& counts) { counts.num_refused = 8, counts.num_failed_stores = 10; });
  EXPECT_EQ(tier->stats().num_corrupted_blocks, 8U);
  EXPECT_EQ(tier->stats().num_failed_blocks, 11U);
}

TEST_F(RemoteTierWatch, RemovesItsEvictedBlocksFromTheStore) {
  const auto tier = open();
  OffloadConnector& offload = connector_of(*tier).offload();
  for (std::uint64_t number = 1; number <= 8; ++number) test::add_key(offload, number);
  EXPECT_TRUE(store_->forgotten.empty());
  test::add_key(offload, 9);
  EXPECT_EQ(store_->forgotten, std::vector{small_key(1)}) << "the block that was stored first is evicted";
}

TEST_F(RemoteTierWatch, KeepsBlocksOfOtherServersInTheStore) {
  const auto tier = open();
  RemoteConnector& connector = connector_of(*tier);
  const test::HashedRequest request(1, 33, 1);  // eight blocks
  EXPECT_EQ(connector.match(request.view, 0).num_tokens, std::nullopt);
  store_->questions.at(0).over({.has = std::vector<bool>(8, true), .is_whole = true});
  EXPECT_EQ(connector.match(request.view, 0).num_tokens, 32U);
  for (std::uint64_t number = 11; number <= 18; ++number) test::add_key(connector.offload(), number);
  EXPECT_TRUE(store_->forgotten.empty()) << "other servers have stored them";
  test::add_key(connector.offload(), 19);
  EXPECT_EQ(store_->forgotten.size(), 1U) << "this server stored the block";
}

TEST_F(RemoteTierWatch, DisablesLoadsThatFailUntilATrialSucceeds) {
  for (const bool is_refused : {false, true}) {
    SCOPED_TRACE(is_refused);
    const auto store = std::make_shared<test::ScriptedSharedStore>();
    const auto tier = RemoteTier::open_on(store, {.policy = KvTierPolicy::exact}, test::small_config()).value();
    std::atomic<std::uint32_t> num_notices = 0;
    tier->set_notify([&num_notices] { ++num_notices; });
    EXPECT_FALSE(tier->maintain(0.0));
    store->count([&](SharedStoreStats& stats) { (is_refused ? stats.num_refused : stats.num_failed_loads) = 3; });
    ASSERT_TRUE(test::comes_true([&] { return num_notices > 0; }));
    EXPECT_FALSE(tier->stats().loads_left_out) << "the engine thread has not taken the change yet";
    EXPECT_TRUE(tier->maintain(0.0));
    EXPECT_TRUE(tier->stats().loads_left_out);
    EXPECT_FALSE(tier->stats().stores_left_out);
    EXPECT_EQ(tier->stats().num_times_disabled, 1U);
    EXPECT_EQ(connector_of(*tier).match(test::HashedRequest(1, 9, 1).view, 0).num_tokens, 0U);
    EXPECT_FALSE(tier->maintain(0.0)) << "nothing has changed";
    ASSERT_TRUE(test::comes_true([&] { return store->num_probes == 1; })) << "a trial reads a block";
    store->count([](SharedStoreStats& stats) { stats.num_answered_loads = 1; });
    ASSERT_TRUE(test::comes_true([&] { return tier->maintain(0.0); }));
    EXPECT_FALSE(tier->stats().loads_left_out);
    EXPECT_EQ(connector_of(*tier).match(test::HashedRequest(2, 9, 1).view, 0).num_tokens, std::nullopt) << "the store is asked again";
    EXPECT_EQ(store->num_probes, 1U);
    tier->set_notify({});
  }
}

TEST_F(RemoteTierWatch, CountsQuestionsThatTookTooLongAsFailedLoads) {
  const auto tier = open({.policy = KvTierPolicy::exact, .timeouts = {.lookup_timeout_s = 0.0, .reply_s = 1.0, .block_s = 1.0}});
  for (std::uint64_t i = 1; i <= 3; ++i) {
    const test::HashedRequest request(i, 9, 10 * i);
    EXPECT_EQ(connector_of(*tier).match(request.view, 0).num_tokens, std::nullopt);
    EXPECT_EQ(connector_of(*tier).match(request.view, 0).num_tokens, 0U);
  }
  EXPECT_EQ(tier->stats().num_query_timeouts, 3U);
  EXPECT_TRUE(test::comes_true([&] { return tier->maintain(0.0); }));
  EXPECT_TRUE(tier->stats().loads_left_out);
}

TEST_F(RemoteTierWatch, DisablesStoresThatFailAndTriesThemAgain) {
  const auto tier = open();
  const auto are_left_out = [&] {
    tier->maintain(0.0);
    return tier->stats().stores_left_out;
  };
  ASSERT_TRUE(test::comes_true([&] {
    store_->count([](SharedStoreStats& stats) { stats.num_failed_stores += 3; });
    return are_left_out();
  }));
  EXPECT_FALSE(tier->stats().loads_left_out);
  EXPECT_GE(tier->stats().num_times_disabled, 1U);
  EXPECT_TRUE(test::comes_true([&] { return !are_left_out(); })) << "the next stores are a trial";
  EXPECT_EQ(store_->num_probes, 0U) << "loads work";
}

TEST_F(RemoteTierWatch, ReportsBlocksThatItGaveToOtherServers) {
  for (const bool stores : {false, true}) {
    const auto store = std::make_shared<test::ScriptedSharedStore>();
    store->can.stores = stores;
    const auto tier = RemoteTier::open_on(store, {.policy = KvTierPolicy::exact}, test::small_config()).value();
    std::atomic<std::uint32_t> num_notices = 0;
    tier->set_notify([&num_notices] { ++num_notices; });
    store->count([](SharedStoreStats& stats) { stats.num_stored = 4; });
    if (!stores) EXPECT_TRUE(test::comes_true([&] { return num_notices == 1; })) << "the engine publishes the count";
    EXPECT_EQ(tier->maintain(0.0), !stores);
    EXPECT_FALSE(tier->maintain(0.0));
    tier->set_notify({});
  }
}

TEST_F(RemoteTierWatch, AsksNothingOfAStoreWithoutLoads) {
  store_->can.loads = false;
  const auto tier = open();
  EXPECT_EQ(connector_of(*tier).match(test::HashedRequest(1, 9, 1).view, 0).num_tokens, 0U);
  EXPECT_TRUE(store_->questions.empty());
}

TEST_F(RemoteTierWatch, MeasuresTheCostsOfLoads) {
  const auto tier = open({.policy = KvTierPolicy::measured});
  EXPECT_TRUE(tier->maintain(100.0));
  EXPECT_FALSE(tier->maintain(100.0));
  EXPECT_EQ(tier->stats().compute_tokens_per_s, 100.0);
  store_->count([](SharedStoreStats& stats) { stats.bytes_read = 1000, stats.loading_s = 0.5; });
  EXPECT_TRUE(tier->maintain(100.0));
  EXPECT_DOUBLE_EQ(tier->stats().load_bytes_per_s, 2000.0);
  store_->count([](SharedStoreStats& stats) { stats.bytes_read = 4000, stats.loading_s = 1.0; });
  EXPECT_TRUE(tier->maintain(100.0));
  const double kept = std::exp(-0.5 / kLoadHorizon_s);
  EXPECT_DOUBLE_EQ(tier->stats().load_bytes_per_s, (1000 * kept + 3000) / (0.5 * kept + 0.5));
}

// A load that the policy declines measures nothing, so the store is probed instead.
TEST_F(RemoteTierWatch, ProbesTheStoreWhenLoadsAreDeclined) {
  const auto tier = open({.policy = KvTierPolicy::measured});
  store_->count([](SharedStoreStats& stats) { stats.bytes_read = 1, stats.loading_s = 1.0; });
  tier->maintain(1e9);
  RemoteConnector& connector = connector_of(*tier);
  const test::HashedRequest request(1, 9, 1);
  EXPECT_EQ(connector.match(request.view, 0).num_tokens, std::nullopt);
  store_->questions.at(0).over({.has = {true, true}, .is_whole = true});
  EXPECT_EQ(connector.match(request.view, 0).num_tokens, 0U) << "computing is faster";
  const std::span<const BlockId> blocks[1] = {request.blocks};
  connector.allocated(request.view, blocks, 0);
  EXPECT_EQ(tier->stats().num_computed_tokens, 8U);
  EXPECT_EQ(store_->num_probes, 0U);
  tier->maintain(1e9);
  EXPECT_TRUE(test::comes_true([&] { return store_->num_probes == 1; }));
}

TEST_F(RemoteTierWatch, PassesItsOptionsToTheConnector) {
  for (const bool joins : {false, true}) {
    const auto tier = open({.policy = KvTierPolicy::exact, .join_loads = joins});
    EXPECT_EQ(test::joins_loads(connector_of(*tier).offload()), joins);
  }
}

TEST(RemoteTierOptionsTest, HaveBoundsForTheBudgetAndTheLifetime) {
  const auto config = test::small_config();
  const std::uint64_t value = remote_value_bytes(test::kSmallBlockBytes);
  const auto open = [&](std::uint64_t budget, const KvLayout& layout = test::small_layout()) {
    return RemoteTier::open({.address = "redis://localhost:1", .budget_bytes = budget, .policy = KvTierPolicy::exact}, config, layout,
                            test::tier_fingerprint());
  };
  EXPECT_EQ(open(value - 1).error().to_string(), "kv_remote_budget: " + std::to_string(value - 1) +
                                                     " bytes are too small for one block of 32 bytes; use a size that holds several "
                                                     "thousand blocks");
  EXPECT_EQ(open(value).value()->stats().num_places, 1U);
  const KvTierStats stats = open(3 * value - 1).value()->stats();
  EXPECT_EQ(stats.num_places, 2U);
  EXPECT_EQ(stats.place_bytes, value);
  EXPECT_EQ(stats.budget_bytes, 3 * value - 1);
  KvLayout large = test::small_layout();
  large.page_bytes = {std::uint64_t{64} << 20U};
  EXPECT_EQ(open(0, large).value()->stats().budget_bytes, std::uint64_t{16} << 30U) << "the default";
  constexpr std::uint64_t kCentury_s = std::uint64_t{100} * 365 * 24 * 60 * 60;
  for (const auto& [ttl_s, is_good] : {std::pair(std::uint64_t{0}, false), {1, true}, {kCentury_s, true}, {kCentury_s + 1, false}}) {
    const Result<void> checked = check_remote({.address = "redis://localhost", .ttl_s = ttl_s});
    EXPECT_EQ(checked ? "" : checked.error().to_string(),
              is_good ? "" : "kv_remote_ttl: " + std::to_string(ttl_s) + " s is out of range; use 1 s to 100 years");
  }
  EXPECT_EQ(check_remote({.address = "redis://store"}).error().to_string(),
            "kv_remote_key: is required, because others can write to a store on another machine; use a file of at least 16 random bytes, "
            "the same on all servers that share the store");
}

}  // namespace
}  // namespace quire
