// Tests what all tiers share: the options of their connectors, the sizes of their blocks, their events and their refusals.
#include "engine/tiers/tier_check.h"

#include <gtest/gtest.h>

#include "engine/tiers/dram_tier.h"
#include "engine/tiers/hashed_request.h"
#include "runtime/tier/toy_cache.h"

namespace quire {
namespace {

using test::kSmallBlockBytes;

CoreConfig config_with_events() {
  CoreConfig config = test::small_config();
  config.report.enable_kv_events = true;
  return config;
}

TEST(TierConnectorOptions, FollowTheOptionsOfTheTier) {
  const auto policy = [](std::uint32_t, const SlotKeys&) { return std::unique_ptr<EvictionPolicy>(); };
  CoreConfig config = config_with_events();
  for (const auto& [num_blocks, most] : {std::pair(60U, 15U), {3U, 1U}, {0U, 1U}}) {
    config.kv.num_blocks = num_blocks;
    const OffloadConnectorOptions made = tier_connector_options(999,
                                                                KvDramOptions{.eviction_policy = "arc",
                                                                              .policy = KvTierPolicy::measured,
                                                                              .join_loads = true,
                                                                              .store_threshold = 3,
                                                                              .max_tracker_size = 77,
                                                                              .custom_policy = policy},
                                                                config);
    EXPECT_EQ(made.cpu_bytes_to_use, 999U);
    EXPECT_EQ(made.eviction_policy, "arc");
    EXPECT_EQ(made.store_threshold, 3);
    EXPECT_EQ(made.max_tracker_size, 77);
    EXPECT_TRUE(made.enable_events);
    EXPECT_TRUE(made.join_loads);
    EXPECT_TRUE(made.hit_after_store_completes);
    EXPECT_EQ(made.max_storing_blocks, most);
    EXPECT_TRUE(made.stores_leading_blocks);
    EXPECT_TRUE(made.custom_policy != nullptr);
  }
  config.report.enable_kv_events = false;
  const OffloadConnectorOptions exact = tier_connector_options(1, KvDiskOptions{.policy = KvTierPolicy::exact}, config);
  EXPECT_FALSE(exact.enable_events || exact.join_loads || exact.hit_after_store_completes || exact.stores_leading_blocks);
  EXPECT_EQ(exact.max_storing_blocks, 0U);
}

TEST(TierCheck, CountsTheBytesOfABlockByGroup) {
  EXPECT_EQ(group_block_bytes(test::two_groups()), (std::vector<std::uint64_t>{9000, 6000}));
}

TEST(TierCheck, SaysHowToServeAModelWithoutATier) {
  CoreConfig config = test::small_config();
  EXPECT_TRUE(check_tier(config, "kv_dram"));
  config.prefix_cache.enable_prefix_caching = false;
  const Error no_cache = check_tier(config, "kv_dram").error();
  EXPECT_EQ(no_cache.code, ErrorCode::invalid_argument);
  EXPECT_EQ(no_cache.field, "kv_dram");
  EXPECT_EQ(no_cache.remedy, "turn prefix caching on, or serve without a tier");
  config = test::small_config();
  config.kv.groups[0].spec = ChunkedLocalSpec{};
  const Error no_groups = check_tier(config, "kv_remote").error();
  EXPECT_EQ(no_groups.code, ErrorCode::unsupported);
  EXPECT_EQ(no_groups.field, "kv_remote");
  EXPECT_EQ(no_groups.remedy, "serve this model without a tier");
}

TEST(TierEvents, ReportStoredAndRemovedBlocksOfEachGroup) {
  const auto connector =
      OffloadConnector::create({.cpu_bytes_to_use = 8 * kSmallBlockBytes, .enable_events = true}, config_with_events(), kSmallBlockBytes)
          .value();
  OffloadKey windowed = test::small_key(2);
  windowed.group = 1;
  test::add_key(*connector, 1);
  connector->on_query_hit(windowed);
  connector->on_query_miss(windowed);
  std::vector<KvEvent> events;
  take_tier_events(*connector, {.hash_bytes = 8, .block_size = 4}, "DISK", events);
  const auto hash_of = [](const OffloadKey& key) { return KvEventHash(key.hash.begin(), key.hash.begin() + 8); };
  BlockStored first, second;
  first.block_hashes = {hash_of(test::small_key(1))};
  second.block_hashes = {hash_of(windowed)};
  first.block_size = second.block_size = 4;
  first.medium = second.medium = "DISK";
  second.group_idx = 1;
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(std::get<BlockStored>(events[0]), first);
  EXPECT_EQ(std::get<BlockStored>(events[1]), second);
  EXPECT_EQ(std::get<BlockRemoved>(events[2]), (BlockRemoved{.block_hash = hash_of(windowed), .medium = "DISK", .group_idx = 1}));
  take_tier_events(*connector, {}, "DISK", events);
  EXPECT_EQ(events.size(), 3U) << "each event is reported once";
}

TEST(TierEvents, JoinBlocksThatWereStoredTogether) {
  CoreConfig config = resolve_options(test::small_cache(), simulated_model(), {1, 0}).value().core;
  config.report.enable_kv_events = true;
  const auto tier =
      DramTier::create({.bytes = 100 * kSmallBlockBytes, .policy = KvTierPolicy::exact}, config, test::small_layout()).value();
  quire::Setup setup{.options = test::small_cache(), .tiers = {tier}};
  ASSERT_TRUE(connect_tiers(setup.tiers, setup.seams));
  const auto engine = start(kModes[0], setup);
  Collector sink;
  sink.wait(engine->submit(make_request(48, 1), sink).value());
  engine->stop(60.0);
  std::vector<KvEvent> events;
  tier->take_events({}, events);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(std::get<BlockStored>(events[0]).block_hashes.size(), 12U);
  EXPECT_EQ(std::get<BlockStored>(events[0]).block_hashes[0].size(), 32U);
  EXPECT_EQ(std::get<BlockStored>(events[0]).medium, "CPU");
}

}  // namespace
}  // namespace quire
