// Tests engines that share the blocks of their host memory: the tokens do not change, an engine finds blocks that another one has computed,
// and no engine waits long for a failed peer. The simulated worker stops the program when a block does not hold what the plan says.
#include "engine/tiers/peer_cache_tier.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <thread>

#include "engine/simulated_engine.h"
#include "engine/tiers/dram_tier.h"
#include "runtime/remote/peer_cache.h"
#include "runtime/remote/peer_relay.h"
#include "runtime/tier/tier_support.h"
#include "support/small_cache.h"

namespace quire {
namespace {

using test::PeerRelay;
using test::RelayFault;
using test::small_cache;
using test::small_layout;

using test::kMuchTooLong_s;  // the product waits for less than 2 s

struct CacheEngine {
  std::vector<std::uint16_t> peers = {};
  std::uint16_t port = 0;  // port of the shared blocks; 0 means not shared
  std::uint64_t dram_blocks = 400;
  std::uint8_t fingerprint = 7;
  // A busy machine may take long. The timeouts of the product are for tests of peers that fail.
  RemoteTimeouts timeouts = {.lookup_timeout_s = 30.0, .reply_s = 30.0, .block_s = 30.0};
  KvTierPolicy policy = KvTierPolicy::exact;
  ModelInfo model = simulated_model();
  EngineOptions options = small_cache();
};

std::unique_ptr<Engine> start_cache(const Mode& mode, const CacheEngine& wanted) {
  quire::Setup setup{.options = wanted.options, .model = wanted.model};
  const CoreConfig config = resolve_options(wanted.options, wanted.model, {1, 0}).value().core;
  const KvLayout layout = small_layout(config.kv.groups.size());
  std::shared_ptr<DramTier> dram;
  if (wanted.dram_blocks > 0) {
    dram = DramTier::create({.bytes = wanted.dram_blocks * test::kSmallBlockBytes, .policy = KvTierPolicy::exact}, config, layout).value();
    setup.tiers.push_back(dram);
  }
  KvPeerCacheOptions options{.policy = wanted.policy};
  for (const std::uint16_t port : wanted.peers) options.peers.push_back("127.0.0.1:" + std::to_string(port));
  if (wanted.port != 0) options.share = "127.0.0.1:" + std::to_string(wanted.port);
  const auto shelf = wanted.port == 0 ? nullptr : DramTier::share(dram);
  setup.tiers.push_back(
      open_peer_cache(options, config, layout, test::tier_fingerprint(wanted.fingerprint), shelf, wanted.timeouts).value());
  EXPECT_TRUE(connect_tiers(setup.tiers, setup.seams, {}, true));
  return start(mode, setup);
}

// Returns a port without a listener.
std::uint16_t free_peer_port() {
  return PeerServer::open({.host = "127.0.0.1", .port = 0, .secret = {}, .engine_id = {}}).value()->port();
}

KvTierStats peer_tier_of(const Engine& engine) {
  return engine.stats().kv_tiers.back();
}

void wait_for_moves(const Engine& engine) {
  while (engine.stats().num_open_transfers > 0 || engine.stats().num_awaiting_transfers > 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void forget_own_cache(Engine& engine) {
  wait_for_moves(engine);
  Answered reset;
  engine.reset_prefix_cache({}, reset.callback());
  EXPECT_TRUE(reset.wait().value());
}

class PeerCacheTierTest : public testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, PeerCacheTierTest, testing::ValuesIn(played_modes()), mode_name);

TEST_P(PeerCacheTierTest, FindsBlocksThatAnotherEngineHasComputed) {
  const std::uint16_t port = free_peer_port();
  const auto first = start_cache(GetParam(), {.port = port});
  const auto second = start_cache(GetParam(), {.peers = {port}, .dram_blocks = 0});
  const EngineRequest request = make_request(50, 20), other = make_request(50, 20, 70);
  Collector first_sink, sink;
  expect_equal(first_sink.wait(first->submit(request, first_sink).value()), expected(request));
  wait_for_moves(*first);
  const Collector::Answer answer = sink.wait(second->submit(request, sink).value());
  expect_equal(answer, expected(request));
  EXPECT_EQ(answer.num_cached_tokens, 48U);
  const Collector::Answer unknown = sink.wait(second->submit(other, sink).value());
  expect_equal(unknown, expected(other));
  EXPECT_EQ(unknown.num_cached_tokens, 0U);
  const KvTierStats tier = peer_tier_of(*second);
  EXPECT_EQ(tier.name, "peer_cache");
  EXPECT_EQ(tier.tokens_loaded, 48U);
  EXPECT_EQ(tier.num_loaded_blocks, 12U);
  EXPECT_EQ(tier.num_found_blocks, 12U);
  EXPECT_EQ(tier.num_queried_blocks, 24U);
  EXPECT_EQ(tier.num_stored_blocks, 0U) << "the tier stores no blocks";
  const auto begin = std::chrono::steady_clock::now();
  while (peer_tier_of(*first).num_stored_blocks < 12U && std::chrono::steady_clock::now() - begin < std::chrono::seconds(10))
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(peer_tier_of(*first).num_stored_blocks, 12U) << "the blocks that were sent";
  EXPECT_EQ(first->stop(10.0) + second->stop(10.0), 0U);
}

// Both engines ask and share, also with windows. Each round repeats requests that the other engine has computed.
TEST_P(PeerCacheTierTest, ChangesNoTokenOfConcurrentRequestsAlsoWithWindows) {
  for (const std::vector<std::uint32_t>& windows : {std::vector{0U}, std::vector{24U, 24U, 0U}}) {
    const std::uint16_t ports[] = {free_peer_port(), free_peer_port()};
    std::unique_ptr<Engine> engines[2];
    for (std::size_t i = 0; i < 2; ++i) {
      CacheEngine wanted{.peers = {ports[0], ports[1]}, .port = ports[i]};
      wanted.model.num_layers = static_cast<std::uint32_t>(windows.size());
      wanted.model.sliding_windows = windows;
      if (windows.size() > 1) wanted.options.cache.num_blocks = 170;
      engines[i] = start_cache(GetParam(), wanted);
    }
    Collector sinks[2];
    for (std::uint64_t round = 0; round < 4; ++round)
      expect_random_answers(*engines[round % 2], sinks[round % 2], 71 + round / 2, test::kSmallRequests);
    EXPECT_GT(peer_tier_of(*engines[1]).num_loaded_blocks, 50U) << "the test covers too few cases";
    for (const std::unique_ptr<Engine>& engine : engines) {
      EXPECT_EQ(engine->stop(60.0), 0U);
      const EngineStats stats = engine->stats();
      EXPECT_EQ(stats.num_free_blocks, stats.num_blocks);
      EXPECT_EQ(peer_tier_of(*engine).num_corrupted_blocks, 0U);
    }
    EXPECT_EQ(peer_tier_of(*engines[0]).num_stored_blocks, peer_tier_of(*engines[1]).num_loaded_blocks);
    EXPECT_EQ(peer_tier_of(*engines[1]).num_stored_blocks, peer_tier_of(*engines[0]).num_loaded_blocks);
  }
}

TEST_P(PeerCacheTierTest, ChangesNoTokenAndWaitsBrieflyWhenAPeerFails) {
  const std::uint16_t port = free_peer_port();
  const auto holder = start_cache(GetParam(), {.port = port, .dram_blocks = 2000});
  Random random(5);
  Collector holder_sink;
  for (int i = 0; i < 8; ++i) {
    const EngineRequest request = make_request(static_cast<std::uint32_t>(random.between(20, 90)), 5, static_cast<TokenId>(i * 20));
    holder_sink.wait(holder->submit(request, holder_sink).value());
    wait_for_moves(*holder);
    PeerRelay relay(port);
    // Each round uses a new engine since a failed peer is not asked for a while.
    const std::uint8_t fingerprint = i % 6 == 5 ? 8 : 7;
    const auto asker =
        start_cache(GetParam(), {.peers = {relay.port()}, .dram_blocks = 0, .fingerprint = fingerprint, .timeouts = kPeerTimeouts});
    relay.fault = i % 4 == 3 ? RelayFault::stalls : i % 2 == 0 ? RelayFault::flips : RelayFault::cuts;
    relay.at = random.below(1500);
    Collector sink;
    const auto begin = std::chrono::steady_clock::now();
    expect_equal(sink.wait(asker->submit(request, sink).value()), expected(request));
    EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), kMuchTooLong_s) << i;
    if (fingerprint == 8) EXPECT_EQ(peer_tier_of(*asker).num_loaded_blocks, 0U);
    EXPECT_EQ(asker->stop(10.0), 0U);
    const EngineStats stats = asker->stats();
    EXPECT_EQ(stats.num_free_blocks, stats.num_blocks);
  }
  EXPECT_EQ(holder->stop(10.0), 0U);
}

TEST_P(PeerCacheTierTest, DoesNotWaitForAStoppedPeerAndFindsANewOne) {
  const std::uint16_t port = free_peer_port();
  auto holder = start_cache(GetParam(), {.port = port});
  const auto asker = start_cache(GetParam(), {.peers = {port, free_peer_port()}, .dram_blocks = 0, .timeouts = kPeerTimeouts});
  const EngineRequest request = make_request(50, 5);
  Collector sink;
  const auto answer = [&] {
    forget_own_cache(*asker);
    const auto begin = std::chrono::steady_clock::now();
    const Collector::Answer found = sink.wait(asker->submit(request, sink).value());
    EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), kMuchTooLong_s);
    expect_equal(found, expected(request));
    return found.num_cached_tokens;
  };
  // An answer that is late is not waited for, and a peer that failed is not asked for a while.
  const auto finds = [&] {
    const auto begin = std::chrono::steady_clock::now();
    while (answer() != 48U) {
      if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(20)) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return true;
  };
  const auto compute = [&] {
    Collector holder_sink;
    holder_sink.wait(holder->submit(request, holder_sink).value());
    wait_for_moves(*holder);
  };
  compute();
  EXPECT_TRUE(finds());
  holder.reset();
  EXPECT_EQ(answer(), 0U);
  holder = start_cache(GetParam(), {.port = port});
  compute();
  EXPECT_TRUE(finds());
  EXPECT_EQ(holder->stop(10.0) + asker->stop(10.0), 0U);
}

// Blocks that a reset removes are not sent to peers.
TEST_P(PeerCacheTierTest, DoesNotServeBlocksThatWereReset) {
  const std::uint16_t port = free_peer_port();
  const auto holder = start_cache(GetParam(), {.port = port});
  const auto asker = start_cache(GetParam(), {.peers = {port}, .dram_blocks = 0});
  const EngineRequest request = make_request(50, 5);
  Collector holder_sink, sink;
  holder_sink.wait(holder->submit(request, holder_sink).value());
  wait_for_moves(*holder);
  Answered reset;
  holder->reset_prefix_cache({.external = true}, reset.callback());
  EXPECT_TRUE(reset.wait().value());
  const Collector::Answer found = sink.wait(asker->submit(request, sink).value());
  expect_equal(found, expected(request));
  EXPECT_EQ(found.num_cached_tokens, 0U);
  EXPECT_EQ(peer_tier_of(*holder).num_stored_blocks, 0U);
  EXPECT_EQ(holder->stop(10.0) + asker->stop(10.0), 0U);
}

TEST(PeerCacheTier, ReportsBlocksOfPeersWithItsMedium) {
  const std::uint16_t port = free_peer_port();
  const auto holder = start_cache(kModes[0], {.port = port});
  Collector holder_sink, sink;
  const EngineRequest request = make_request(50, 1);
  holder_sink.wait(holder->submit(request, holder_sink).value());
  wait_for_moves(*holder);
  CoreConfig config = resolve_options(small_cache(), simulated_model(), {1, 0}).value().core;
  config.report.enable_kv_events = true;
  const auto tier =
      open_peer_cache({.peers = {"127.0.0.1:" + std::to_string(port)}}, config, small_layout(), test::tier_fingerprint(), nullptr).value();
  quire::Setup setup{.options = small_cache(), .tiers = {tier}};
  ASSERT_TRUE(connect_tiers(setup.tiers, setup.seams, {}, true));
  const auto asker = start(kModes[0], setup);
  sink.wait(asker->submit(request, sink).value());
  asker->stop(10.0);
  std::vector<KvEvent> events;
  tier->take_events({}, events);
  std::size_t num_blocks = 0;
  for (const KvEvent& event : events) {
    const auto& stored = std::get<BlockStored>(event);
    EXPECT_EQ(stored.medium, "REMOTE");
    num_blocks += stored.block_hashes.size();
  }
  EXPECT_EQ(num_blocks, 12U);
}

TEST(PeerCacheTier, ReportsInvalidOptions) {
  const test::TempFolder folder;
  std::ofstream(folder.file("short")) << "short";
  std::ofstream(folder.file("key")) << "sixteen bytes!!!";
  const auto refusal = [](const KvPeerCacheOptions& options, bool has_block_source = true) {
    const Result<void> checked = check_peer_cache(options, has_block_source);
    return checked ? std::string() : checked.error().field;
  };
  EXPECT_EQ(refusal({.peers = {"127.0.0.1:5601", "localhost:5602", "[::1]:5603"}}), "");
  EXPECT_EQ(refusal({.peers = {"10.0.0.1:5601"}, .key_file = folder.file("key")}), "");
  EXPECT_EQ(refusal({.share = "0.0.0.0:0", .key_file = folder.file("key")}), "");
  for (const char* bad : {"", "host", ":5601", "host:", "host:0", "host:65536", "host:12x", "::1:5601", "[]:1"})
    EXPECT_EQ(refusal({.peers = {bad}}), "kv_peers") << bad;
  EXPECT_EQ(refusal({.peers = std::vector<std::string>(17, "127.0.0.1:5601")}), "kv_peers");
  EXPECT_EQ(refusal({.peers = {"10.0.0.1:5601"}}), "kv_key");
  EXPECT_EQ(refusal({.share = "0.0.0.0:5601"}), "kv_key");
  EXPECT_EQ(refusal({.share = "127.0.0.1:5601", .key_file = folder.file("short")}), "kv_key");
  EXPECT_EQ(refusal({.share = "127.0.0.1:5601"}, false), "kv_share");
  EXPECT_EQ(refusal({.share = "127.0.0.1"}), "kv_share");
  const CoreConfig config = test::small_config();
  const auto shelf = DramTier::share(DramTier::create({.bytes = 1 << 16}, config, small_layout()).value());
  const auto elsewhere =
      open_peer_cache({.share = "192.0.2.1:0", .key_file = folder.file("key")}, config, small_layout(), test::tier_fingerprint(), shelf);
  ASSERT_FALSE(elsewhere);
  EXPECT_EQ(elsewhere.error().field, "kv_share");
}

TEST(PeerCacheTier, SaysWhatIsWrongAndWhatToDo) {
  const auto refusal = [](const KvPeerCacheOptions& options, bool has_block_source = true) {
    const Result<void> checked = check_peer_cache(options, has_block_source);
    return checked ? std::string() : checked.error().to_string();
  };
  EXPECT_EQ(refusal({.peers = std::vector<std::string>(16, "127.0.0.1:5601")}), "");
  EXPECT_EQ(refusal({.peers = std::vector<std::string>(17, "127.0.0.1:5601")}),
            "kv_peers: 17 servers are set, but at most 16 are allowed; use fewer servers; each request queries all of them");
  EXPECT_EQ(refusal({.share = "127.0.0.1:5601"}, false),
            "kv_share: is set, but this server has no tier in host memory to share; add --kv-dram to share blocks, or leave it out to load "
            "blocks only");
  const std::string no_key =
      "kv_key: is required, because servers on other machines are queried or can query this one; use a file of at least 16 random bytes, "
      "the "
      "same on all servers, or use 127.0.0.1";
  EXPECT_EQ(refusal({.peers = {"10.0.0.1:5601", "127.0.0.1:5601"}, .share = "127.0.0.1:0"}), no_key);
  EXPECT_EQ(refusal({.peers = {"127.0.0.1:5601"}, .share = "10.0.0.1:0"}), no_key);
  EXPECT_EQ(refusal({.peers = {"127.0.0.1:5601"}, .share = "127.0.0.1:0"}), "");
}

TEST(PeerCacheTier, TracksFourTimesTheBlocksOfTheCache) {
  CoreConfig config = test::small_config();
  for (const auto& [num_blocks, num_tracked] : {std::pair(60U, 1024U), {256U, 1024U}, {257U, 1028U}, {300000U, 1U << 20U}}) {
    config.kv.num_blocks = num_blocks;
    const auto tier = open_peer_cache({.peers = {"127.0.0.1:1"}, .policy = KvTierPolicy::exact}, config, small_layout(),
                                      test::tier_fingerprint(), nullptr)
                          .value();
    const KvTierStats stats = tier->stats();
    EXPECT_EQ(stats.num_places, num_tracked);
    EXPECT_EQ(stats.name, "peer_cache");
    EXPECT_EQ(stats.place_bytes, test::kSmallBlockBytes);
    EXPECT_EQ(stats.budget_bytes, 0U);
    EXPECT_FALSE(tier->holds_blocks());
    EXPECT_EQ(tier->policy(), KvTierPolicy::exact);
  }
  config.prefix_cache.enable_prefix_caching = false;
  EXPECT_EQ(open_peer_cache({.peers = {"127.0.0.1:1"}}, config, small_layout(), {}, nullptr).error().field, "kv_peers");
  EXPECT_EQ(open_peer_cache({.share = "127.0.0.1:0"}, config, small_layout(), {}, nullptr).error().field, "kv_share");
}

}  // namespace
}  // namespace quire
