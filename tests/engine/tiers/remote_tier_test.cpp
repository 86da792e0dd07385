// Tests the engine's tier in a store that servers share. The tokens do not change whatever the store does, an engine finds blocks that
// another one has computed, and no request waits for a store that does not answer. The simulated worker stops the program when a block does
// not hold what the plan says.
#include "engine/tiers/remote_tier.h"

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <set>
#include <thread>

#include "engine/simulated_engine.h"
#include "engine/tiers/dram_tier.h"
#include "runtime/remote/remote_value.h"
#include "runtime/remote/toy_redis.h"
#include "runtime/tier/tier_support.h"
#include "support/pipe.h"
#include "support/small_cache.h"

namespace quire {
namespace {

using test::small_cache;
using test::small_layout;
using test::ToyRedis;

constexpr std::uint64_t kRemoteValue = kRemoteHeaderBytes + test::kSmallBlockBytes + kRemoteMacBytes;
constexpr RemoteTimeouts kShortPatience{.lookup_timeout_s = 0.02, .reply_s = 0.05, .block_s = 0.5};

struct RemoteSetup {
  std::string url;
  std::uint32_t num_places = 2000;
  RemoteTimeouts patience = {.lookup_timeout_s = 5.0, .reply_s = 5.0, .block_s = 5.0};
  ModelInfo model = simulated_model();
  EngineOptions options = small_cache();
  std::uint64_t dram_bytes = 0;
  std::shared_ptr<Logger> logger = {};
};

CoreConfig remote_config(const RemoteSetup& remote) {
  return resolve_options(remote.options, remote.model, {1, 0}).value().core;
}

std::shared_ptr<RemoteTier> open_remote(const RemoteSetup& remote, const CoreConfig& config) {
  return RemoteTier::open({.address = remote.url, .budget_bytes = remote.num_places * kRemoteValue, .policy = KvTierPolicy::exact}, config,
                          small_layout(config.kv.groups.size()), test::tier_fingerprint(), remote.patience)
      .value();
}

std::unique_ptr<Engine> start_with_remote(const Mode& mode, const RemoteSetup& remote) {
  const CoreConfig config = remote_config(remote);
  quire::Setup setup{.options = remote.options, .model = remote.model};
  if (remote.dram_bytes > 0)
    setup.tiers.push_back(DramTier::create({.bytes = remote.dram_bytes, .policy = KvTierPolicy::exact}, config, small_layout()).value());
  setup.tiers.push_back(open_remote(remote, config));
  setup.seams.logger = remote.logger;
  EXPECT_TRUE(connect_tiers(setup.tiers, setup.seams, {}, true));
  return start(mode, setup);
}

void wait_for_transfers(const Engine& engine) {
  while (engine.stats().num_open_transfers > 0 || engine.stats().num_awaiting_transfers > 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

class RemoteTierTest : public testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, RemoteTierTest, testing::ValuesIn(played_modes()), mode_name);

TEST_P(RemoteTierTest, FindsBlocksThatAnotherEngineHasComputed) {
  ToyRedis redis;
  const EngineRequest request = make_request(50, 20), other = make_request(50, 20, 70);
  for (const bool is_second : {false, true}) {
    const std::unique_ptr<Engine> engine = start_with_remote(GetParam(), {.url = redis.url()});
    Collector sink;
    const Collector::Answer answer = sink.wait(engine->submit(request, sink).value());
    expect_equal(answer, expected(request));
    EXPECT_EQ(answer.num_cached_tokens, is_second ? 48U : 0U);
    if (is_second) {
      const Collector::Answer unknown = sink.wait(engine->submit(other, sink).value());
      expect_equal(unknown, expected(other));
      EXPECT_EQ(unknown.num_cached_tokens, 0U);
    }
    EXPECT_EQ(engine->stop(60.0), 0U);
    const KvTierStats tier = engine->stats().kv_tiers.at(0);
    EXPECT_EQ(tier.name, "remote");
    EXPECT_EQ(tier.tokens_loaded, is_second ? 48U : 0U);
    EXPECT_EQ(tier.num_found_blocks, is_second ? 12U : 0U);
    EXPECT_GT(tier.num_stored_blocks, is_second ? 0U : 12U);
  }
}

TEST_P(RemoteTierTest, ChangesNoTokenAlsoWithWindowsAndAMemoryTier) {
  for (const std::vector<std::uint32_t>& windows : {std::vector{0U}, std::vector{24U, 24U, 0U}, std::vector{40U, 40U}}) {
    ToyRedis redis;
    RemoteSetup remote{.url = redis.url()};
    remote.model.num_layers = static_cast<std::uint32_t>(windows.size());
    remote.model.sliding_windows = windows;
    if (windows.size() > 1) remote.options.cache.num_blocks = windows.back() == 40 ? 50 : 170;
    if (windows.size() == 1) remote.dram_bytes = 20 * test::kSmallBlockBytes;
    for (std::uint64_t run = 0; run < 2; ++run) {
      const EngineStats stats = test::run_random(*start_with_remote(GetParam(), remote), 71);
      const KvTierStats& tier = stats.kv_tiers.back();
      EXPECT_GT(tier.num_stored_blocks + tier.num_loaded_blocks, 50U) << "the test covers too few cases";
      EXPECT_GT(tier.tokens_loaded, run == 1 ? 100U : 0U);
      EXPECT_EQ(tier.num_corrupted_blocks + tier.num_failed_blocks, 0U);
    }
  }
}

// The test runs 10,000 commands. A tenth of the answers is swapped, cut, delayed, invented or worse.
TEST_P(RemoteTierTest, ChangesNoTokenWhenTheStoreIsHostile) {
  ToyRedis redis;
  const std::unique_ptr<Engine> engine = start_with_remote(GetParam(), {.url = redis.url(), .patience = kShortPatience});
  redis.fault_chance = 0.1;
  redis.stall_s = 0.08;
  Collector sink;
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint64_t round = 0; redis.num_commands < 10'000; ++round) {
    ASSERT_LT(std::chrono::steady_clock::now() - begin, std::chrono::minutes(10));
    expect_random_answers(*engine, sink, 300 + round % 3, test::kSmallRequests);
    Answered reset;  // cached blocks would not be looked up in the tier
    engine->reset_prefix_cache({}, reset.callback());
    reset.wait();
  }
  EXPECT_EQ(engine->stop(60.0), 0U);
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.num_free_blocks, stats.num_blocks);
  EXPECT_EQ(stats.num_open_transfers, 0U);
  EXPECT_GT(redis.num_faults, 500U);
  const KvTierStats& tier = stats.kv_tiers.at(0);
  EXPECT_GT(tier.num_loaded_blocks, 100U) << "the test covers too few cases";
  EXPECT_GT(tier.num_corrupted_blocks, 10U);
  EXPECT_GT(tier.num_failed_blocks, 10U);
}

// Requests continue while the store stalls, is unreachable or is empty. The log reports it, and the store is enabled again.
TEST_P(RemoteTierTest, DisablesAnUnreachableStoreAndEnablesItAgain) {
  ToyRedis redis;
  Pipe pipe;
  {
    const std::unique_ptr<Engine> engine = start_with_remote(
        GetParam(),
        {.url = redis.url(), .patience = kShortPatience, .logger = std::make_shared<Logger>(LogOptions{.descriptor = pipe.writer()})});
    Collector sink;
    TokenId first = 60;
    const auto answer = [&](const EngineRequest& request) {
      const Collector::Answer found = sink.wait(engine->submit(request, sink).value());
      expect_equal(found, expected(request));
      wait_for_transfers(*engine);
      Answered reset;
      engine->reset_prefix_cache({}, reset.callback());
      EXPECT_TRUE(reset.wait().value());
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return found.num_cached_tokens;
    };
    const auto tier = [&] { return engine->stats().kv_tiers.at(0); };
    const EngineRequest lasting = make_request(50, 5);
    answer(lasting);
    while (answer(lasting) != 48U) {
    }
    for (const bool stalls : {true, false}) {
      if (stalls)
        redis.stalls = true;
      else
        redis.close();
      while (!tier().loads_left_out || !tier().stores_left_out) answer(make_request(20, 2, ++first));
      EXPECT_GT(tier().num_failed_blocks + tier().num_query_timeouts, 2U);
      if (stalls)
        redis.stalls = false;
      else
        redis.open();
      redis.forget_all();
      while (tier().loads_left_out || tier().stores_left_out) answer(make_request(20, 2, ++first));
      while (answer(lasting) != 48U) {
      }
    }
    EXPECT_EQ(engine->stop(60.0), 0U);
  }
  std::string log;
  for (const std::string& line : pipe.lines()) log += line + "\n";
  EXPECT_NE(log.find("warning kv_tier_left_out tier=remote what=loads"), std::string::npos) << log;
  EXPECT_NE(log.find("kv_tier_back tier=remote what=loads"), std::string::npos) << log;
}

// Blocks above the budget are removed from the store. Values of other servers stay.
TEST_P(RemoteTierTest, KeepsWithinItsBudget) {
  ToyRedis redis;
  redis.put("another's", "value");
  constexpr std::uint32_t kPlaces = 20;
  const std::unique_ptr<Engine> engine = start_with_remote(GetParam(), {.url = redis.url(), .num_places = kPlaces});
  const EngineStats stats = test::run_random(*engine, 71);
  EXPECT_EQ(stats.kv_tiers.at(0).num_places, kPlaces);
  EXPECT_GT(stats.kv_tiers.at(0).num_stored_blocks, 2 * kPlaces) << "the test covers too few cases";
  const auto begin = std::chrono::steady_clock::now();
  while (redis.values().size() > kPlaces + 1 && std::chrono::steady_clock::now() - begin < std::chrono::seconds(10))
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_LE(redis.values().size(), kPlaces + 1);
  EXPECT_TRUE(redis.values().contains("another's"));
}

TEST_P(RemoteTierTest, ForgetsBlocksOfAllEnginesOnAnExternalReset) {
  ToyRedis redis;
  const EngineRequest request = make_request(50, 1);
  const std::unique_ptr<Engine> other = start_with_remote(GetParam(), {.url = redis.url()});
  const std::unique_ptr<Engine> engine = start_with_remote(GetParam(), {.url = redis.url()});
  Collector others, sink;  // each engine numbers its requests from the first
  others.wait(other->submit(request, others).value());
  wait_for_transfers(*other);
  EXPECT_EQ(other->stop(60.0), 0U);
  for (const bool external : {false, true}) {
    wait_for_transfers(*engine);
    Answered reset;
    engine->reset_prefix_cache({.external = external}, reset.callback());
    EXPECT_TRUE(reset.wait().value());
    const Collector::Answer answer = sink.wait(engine->submit(request, sink).value());
    expect_equal(answer, expected(request));
    EXPECT_EQ(answer.num_cached_tokens, external ? 0U : 48U);
  }
  EXPECT_EQ(engine->stop(60.0), 0U);
}

TEST(RemoteTier, ReportsItsBlocksWithItsMedium) {
  ToyRedis redis;
  const RemoteSetup remote{.url = redis.url()};
  CoreConfig config = remote_config(remote);
  config.report.enable_kv_events = true;
  const std::shared_ptr<RemoteTier> tier = open_remote(remote, config);
  quire::Setup setup{.options = remote.options, .tiers = {tier}};
  ASSERT_TRUE(connect_tiers(setup.tiers, setup.seams, {}, true));
  const std::unique_ptr<Engine> engine = start(kModes[0], setup);
  Collector sink;
  const EngineRequest request = make_request(50, 1);
  sink.wait(engine->submit(request, sink).value());
  engine->stop(60.0);
  std::vector<KvEvent> events;
  tier->take_events({}, events);
  ASSERT_FALSE(events.empty());
  std::size_t num_blocks = 0;
  for (const KvEvent& event : events) {
    const auto& stored = std::get<BlockStored>(event);
    EXPECT_EQ(stored.medium, "REMOTE");
    num_blocks += stored.block_hashes.size();
  }
  EXPECT_EQ(num_blocks, 12U);
}

std::string refusal_of_remote(const KvRemoteOptions& options) {
  const Result<void> checked = check_remote(options);
  return checked ? "" : checked.error().to_string();
}

TEST(RemoteTier, ReportsInvalidOptions) {
  const test::TempFolder folder;
  const std::string key = folder.file("key"), short_key = folder.file("short"), long_key = folder.file("long");
  std::ofstream(key) << "sixteen bytes!!!\n";
  std::ofstream(short_key) << "fifteen bytes!!\n";
  std::ofstream(long_key) << std::string(4098, 'x');
  EXPECT_EQ(refusal_of_remote({.address = "redis://localhost"}), "");
  EXPECT_EQ(refusal_of_remote({.address = "redis://store", .key_file = key}), "");
  EXPECT_NE(refusal_of_remote({.address = "store"}).find("kv_remote: the address is not a valid URL"), std::string::npos);
  EXPECT_NE(refusal_of_remote({.address = "redis://store"}).find("kv_remote_key: is required"), std::string::npos);
  EXPECT_NE(refusal_of_remote({.address = "redis://store", .key_file = short_key}).find("has 15 bytes"), std::string::npos);
  EXPECT_NE(refusal_of_remote({.address = "redis://store", .key_file = long_key}).find("has too many bytes"), std::string::npos);
  EXPECT_NE(refusal_of_remote({.address = "redis://store", .key_file = "/nowhere"}).find("kv_remote_key: /nowhere cannot be read"),
            std::string::npos);
  EXPECT_NE(refusal_of_remote({.address = "unix:///s", .ttl_s = 0}).find("kv_remote_ttl"), std::string::npos);
  const RemoteSetup remote{.url = "redis://localhost"};
  const CoreConfig config = remote_config(remote);
  const auto small = RemoteTier::open({.address = remote.url, .budget_bytes = 10}, config, small_layout(), test::tier_fingerprint());
  ASSERT_FALSE(small);
  EXPECT_EQ(small.error().field, "kv_remote_budget");
  const auto no_certificates =
      RemoteTier::open({.address = "rediss://localhost", .ca_file = key}, config, small_layout(), test::tier_fingerprint());
  ASSERT_FALSE(no_certificates);
  EXPECT_EQ(no_certificates.error().field, "kv_remote_ca");
}

}  // namespace
}  // namespace quire
