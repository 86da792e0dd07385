#include "cli/flags/tier_flags.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <string>

#include "cli/flags/engine_flags.h"

namespace quire {
namespace {

struct Parsed {
  EngineOptions options;
  TierFlags tiers;
};

Parsed parsed_tiers(const std::string& flags) {
  CLI::App app;
  Parsed parsed;
  add_engine_flags(app, parsed.options);
  add_tier_flags(app, parsed.options, parsed.tiers);
  app.parse("model.gguf " + flags);
  return parsed;
}

TEST(TierFlags, EveryFlagReachesItsOption) {
  const auto [options, tiers] = parsed_tiers(
      "--kv-dram 2GiB --kv-dram-policy arc --kv-disk /tmp/folder --kv-disk-budget 3GiB --kv-disk-policy s3fifo --kv-disk-bandwidth 4MiB "
      "--kv-disk-write-through "
      "--kv-policy exact --kv-join-loads --kv-store-threshold 2 --kv-max-tracker-size 99 --kv-connector A,x=1 --kv-connector B "
      "--kv-remote redis://localhost --kv-remote-key /key --kv-remote-ca /ca --kv-remote-budget 5GiB --kv-remote-ttl 60 "
      "--kv-peers a:1,b:2 --kv-peers [::1]:3 --kv-share 127.0.0.1:5601 --kv-key /peers "
      "--kv-connector-library lib.so --kv-connector-longest --kv-load-failure-policy fail");
  EXPECT_EQ(tiers.kv_dram.bytes, 2ULL << 30);
  EXPECT_EQ(tiers.kv_dram.eviction_policy, "arc");
  EXPECT_EQ(tiers.kv_disk.folder, "/tmp/folder");
  EXPECT_EQ(tiers.kv_disk.budget_bytes, 3ULL << 30);
  EXPECT_EQ(tiers.kv_disk.eviction_policy, "s3fifo");
  EXPECT_EQ(tiers.kv_disk.bytes_per_second, 4ULL << 20);
  EXPECT_TRUE(tiers.kv_disk.write_through);
  EXPECT_EQ(tiers.kv_remote.address, "redis://localhost");
  EXPECT_EQ(tiers.kv_remote.key_file, "/key");
  EXPECT_EQ(tiers.kv_remote.ca_file, "/ca");
  EXPECT_EQ(tiers.kv_remote.budget_bytes, 5ULL << 30);
  EXPECT_EQ(tiers.kv_remote.ttl_s, 60U);
  EXPECT_EQ(tiers.kv_remote.policy, KvTierPolicy::exact);
  EXPECT_TRUE(tiers.kv_remote.join_loads);
  EXPECT_EQ(tiers.kv_peer_cache.peers, (std::vector<std::string>{"a:1", "b:2", "[::1]:3"}));
  EXPECT_EQ(tiers.kv_peer_cache.share, "127.0.0.1:5601");
  EXPECT_EQ(tiers.kv_peer_cache.key_file, "/peers");
  EXPECT_EQ(tiers.kv_peer.key_file, "/peers");
  EXPECT_EQ(tiers.kv_peer_cache.policy, KvTierPolicy::exact);
  EXPECT_TRUE(tiers.kv_peer_cache.join_loads);
  EXPECT_EQ(tiers.kv_dram.policy, KvTierPolicy::exact);
  EXPECT_EQ(tiers.kv_disk.policy, KvTierPolicy::exact);
  EXPECT_EQ(connectors_of(tiers).value().policy, KvTierPolicy::exact);
  EXPECT_TRUE(tiers.kv_dram.join_loads && tiers.kv_disk.join_loads);
  EXPECT_EQ(tiers.kv_dram.store_threshold, 2);
  EXPECT_EQ(tiers.kv_disk.store_threshold, 2);
  EXPECT_EQ(tiers.kv_dram.max_tracker_size, 99);
  EXPECT_EQ(tiers.kv_disk.max_tracker_size, 99);
  EXPECT_EQ(tiers.kv_connectors, (std::vector<std::string>{"A,x=1", "B"}));
  EXPECT_EQ(tiers.kv_connector_libraries, std::vector<std::string>{"lib.so"});
  EXPECT_TRUE(tiers.kv_connector_longest);
  EXPECT_EQ(options.kv_load_failure, KvLoadFailurePolicy::fail);
}

TEST(TierFlags, DefaultsMatchHelp) {
  const auto [options, tiers] = parsed_tiers("");
  EXPECT_EQ(options.kv_load_failure, KvLoadFailurePolicy::recompute);
  EXPECT_EQ(tiers.kv_dram.store_threshold, 0);
  EXPECT_EQ(tiers.kv_disk.max_tracker_size, 64'000);
  EXPECT_EQ(tiers.kv_disk.policy, KvTierPolicy::measured);
}

TEST(TierFlags, FlagsThatNeedAnotherFlagAreRefusedAlone) {
  for (const char* flags : {"--kv-dram-policy lru", "--kv-disk-budget 1GiB", "--kv-disk-policy lru", "--kv-disk-bandwidth 1MiB",
                            "--kv-disk-write-through", "--kv-connector-longest", "--kv-pressure-low 0.5", "--kv-pressure-preempt",
                            "--kv-swap-disk-budget 1MiB", "--weights-cache-budget 1GiB", "--expert-memory 1GiB"})
    EXPECT_THROW(parsed_tiers(flags), CLI::RequiresError) << flags;
}

TEST(TierFlags, PressureAndSwapFlagsReachTheirOptions) {
  const auto [options, tiers] = parsed_tiers(
      "--kv-watermark 0.01 --kv-pressure-high 0.95 --kv-pressure-low 0.7 --kv-pressure-preempt --kv-swap 1MiB "
      "--kv-swap-disk /tmp/swap --kv-swap-disk-budget 2MiB");
  EXPECT_EQ(options.pressure,
            (PressureOptions{.admission_watermark = 0.01, .pressure_high = 0.95, .pressure_low = 0.7, .pressure_preempts = true}));
  EXPECT_EQ(options.kv_swap.bytes, 1ULL << 20);
  EXPECT_EQ(options.kv_swap.folder, "/tmp/swap");
  EXPECT_EQ(options.kv_swap.folder_bytes, 2ULL << 20);
}

TEST(TierFlags, WeightCacheFlagsReachTheirOptions) {
  const auto [options, tiers] =
      parsed_tiers("--weights-cache /tmp/weights --weights-cache-budget 3GiB --expert-memory 2MiB --quantize q4_k");
  EXPECT_EQ(options.weights.quantise, WeightQuantisation::q4_k);
  EXPECT_EQ(options.weights.cache_folder, "/tmp/weights");
  EXPECT_EQ(options.weights.cache_bytes, 3ULL << 30);
  EXPECT_EQ(options.weights.expert_bytes, 2ULL << 20);
}

TEST(TierFlags, ConnectorFlagsReachTheirOptions) {
  TierFlags flags;
  flags.kv_connectors = {"OffloadingConnector,cpu_bytes_to_use=1000", "Other"};
  flags.kv_connector_longest = true;
  const ConnectorChoice choice = connectors_of(flags).value();
  ASSERT_EQ(choice.connectors.size(), 2U);
  EXPECT_EQ(choice.connectors[0].parameters.at("cpu_bytes_to_use"), "1000");
  EXPECT_TRUE(choice.prefers_longest_match);
  EXPECT_EQ(connectors_of({.kv_connectors = {"A,b"}}).error().field, "kv_connector");
  EXPECT_EQ(connectors_of({.kv_connector_libraries = {"lib.so"}}).error().field, "kv_connector_library") << "the library is not used";
}

}  // namespace
}  // namespace quire
