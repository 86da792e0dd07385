// Tests the contract of every connector: it changes no token, also after failed transfers, a reset or a preemption, and it leaves nothing
// at the end. The simulated worker stops the program when a block does not hold what the plan says.
#include <gtest/gtest.h>

#include <memory>

#include "engine/simulated_engine.h"
#include "engine/tiers/dram_tier.h"
#include "engine/tiers/peer_cache_tier.h"
#include "engine/tiers/remote_tier.h"
#include "quire/connector_registry.h"
#include "runtime/remote/peer_server.h"
#include "runtime/remote/remote_value.h"
#include "runtime/remote/toy_redis.h"
#include "runtime/tier/tier_support.h"
#include "support/faulty_transport.h"
#include "support/simulated_device.h"
#include "support/small_cache.h"

namespace quire {
namespace {

constexpr std::uint32_t kContractRequests = 120;

// A connector of the suite and its parameters.
struct Contracted {
  const char* name;
  std::vector<std::string> connectors;  // FOLDER stands for a new folder
  bool prefers_longest_match = false;
  friend void PrintTo(const Contracted& contracted, std::ostream* out) { *out << contracted.name; }
};

const Contracted kContracted[] = {
    {"offloading", {"OffloadingConnector,cpu_bytes_to_use=12800"}},
    {"offloading_small", {"OffloadingConnector,cpu_bytes_to_use=640,block_size=8,eviction_policy=arc"}},
    {"composite", {"OffloadingConnector,cpu_bytes_to_use=640", "OffloadingConnector,cpu_bytes_to_use=12800,eviction_policy=s3fifo"}},
    {"composite_longest",
     {"OffloadingConnector,cpu_bytes_to_use=640", "SimpleCPUOffloadConnector,cpu_bytes_to_use=3200",
      "ExampleConnector,shared_storage_path=FOLDER"},
     true},
    {"simple_cpu", {"SimpleCPUOffloadConnector,cpu_bytes_to_use=12800"}},
    {"simple_cpu_small", {"SimpleCPUOffloadConnector,cpu_bytes_to_use=640"}},
    {"simulated_device", {"OffloadingConnector,spec_name=SimulatedDevice,blocks=100"}},
    {"simulated_device_small", {"OffloadingConnector,spec_name=SimulatedDevice,blocks=20,block_size=8"}},
    {"tier_and_policy_of_a_library", {"OffloadingConnector,spec_name=HeapTier,blocks=20,eviction_policy=fifo"}},
    {"example", {"ExampleConnector,shared_storage_path=FOLDER"}},
    {"remote", {"Remote,places=400"}},
    {"remote_small", {"Remote,places=20"}},
    {"remote_behind_another", {"OffloadingConnector,cpu_bytes_to_use=640", "Remote,places=400"}, true},
    {"peer_cache_behind_another", {"OffloadingConnector,cpu_bytes_to_use=640", "PeerCache"}, true},
};

class ConnectorContract : public testing::TestWithParam<std::tuple<Contracted, Mode>> {
 protected:
  void make(const test::EndFaults& faults = {}) {
    const auto& [contracted, mode] = GetParam();
    const CoreConfig config = test::small_config();
    ConnectorRegistry registry;
    registry.add_library(QUIRE_EXAMPLE_CONNECTORS);
    ASSERT_TRUE(registry.add_tier("SimulatedDevice", [](const ConnectorParameters& parameters, const ConnectorContext&) {
      ParameterReader reader(parameters);
      const auto num_places = reader.number("blocks", 0U);
      return Result<OffloadTier>({.num_places = num_places, .transport = std::make_shared<test::SimulatedDevice>(num_places)});
    }));
    ASSERT_TRUE(registry.add("Remote", [&](const ConnectorParameters& parameters, const ConnectorContext& context) {
      ParameterReader reader(parameters);
      const std::uint64_t budget = reader.number("places", 0U) * remote_value_bytes(test::kSmallBlockBytes);
      auto tier = RemoteTier::open({.address = redis_.url(), .budget_bytes = budget, .policy = KvTierPolicy::exact}, *context.config,
                                   test::small_layout(), test::tier_fingerprint());
      if (!tier) return Result<ConnectorAndTransport>(std::unexpected(tier.error()));
      return Result<ConnectorAndTransport>({.connector = KvTier::connector_of(*tier), .transport = KvTier::transport_of(*tier)});
    }));
    ASSERT_TRUE(registry.add("PeerCache", [&](const ConnectorParameters&, const ConnectorContext& context) {
      auto tier = open_peer_cache({.peers = {"127.0.0.1:" + std::to_string(start_holder())}, .policy = KvTierPolicy::exact},
                                  *context.config, test::small_layout(), test::tier_fingerprint(), nullptr);
      if (!tier) return Result<ConnectorAndTransport>(std::unexpected(tier.error()));
      return Result<ConnectorAndTransport>({.connector = KvTier::connector_of(*tier), .transport = KvTier::transport_of(*tier)});
    }));
    std::vector<NamedConnector> connectors;
    for (std::string text : contracted.connectors) {
      if (const std::size_t at = text.find("FOLDER"); at != std::string::npos) text.replace(at, 6, folder_.path());
      connectors.push_back(parse_named_connector(text).value());
    }
    auto halves =
        registry.create(connectors, contracted.prefers_longest_match, {.config = &config, .bytes_per_block = test::kSmallBlockBytes})
            .value();
    engine_ = start(
        mode, {.options = options_,
               .seams = {.connector = halves.connector, .transport = std::make_shared<test::FaultyTransport>(halves.transport, faults)}});
  }
  // Starts another engine that has computed some of the requests and shares its blocks. Returns its port.
  std::uint16_t start_holder() {
    const auto dram = DramTier::create({.bytes = 2000 * test::kSmallBlockBytes, .policy = KvTierPolicy::exact}, test::small_config(),
                                       test::small_layout())
                          .value();
    quire::Setup setup{.options = options_, .tiers = {dram}};
    shared_ = PeerServer::open({.host = "127.0.0.1",
                                .port = 0,
                                .secret = {},
                                .fingerprint = test::tier_fingerprint(),
                                .engine_id = "holder",
                                .block_source = DramTier::share(dram)})
                  .value();
    EXPECT_TRUE(connect_tiers(setup.tiers, setup.seams));
    holder_ = start(std::get<1>(GetParam()), setup);
    Collector sink;
    for (std::uint64_t seed = 61; seed < 65; ++seed) {
      Random random(seed);
      std::vector<RequestId> ids;
      for (std::uint32_t i = 0; i < kContractRequests / 2; ++i) ids.push_back(holder_->submit(random_request(random), sink).value());
      for (const RequestId id : ids) sink.wait(id);
    }
    return shared_->port();
  }
  void run(std::uint64_t seed, const std::function<void(std::uint32_t)>& between = [](std::uint32_t) {}) {
    Random random(seed);
    std::map<RequestId, Expected> wanted;
    for (std::uint32_t i = 0; i < kContractRequests; ++i) {
      const EngineRequest request = random_request(random);
      wanted[engine_->submit(request, sink_).value()] = expected(request);
      between(i);
    }
    for (const auto& [id, answer] : wanted) expect_equal(sink_.wait(id), answer);
  }
  void expect_nothing_left() {
    EXPECT_EQ(engine_->stop(60.0), 0U);
    const EngineStats stats = engine_->stats();
    EXPECT_EQ(stats.num_free_blocks, stats.num_blocks);
    EXPECT_EQ(stats.num_open_transfers, 0U);
    EXPECT_EQ(stats.num_awaiting_transfers, 0U);
  }

  test::TempFolder folder_;
  test::ToyRedis redis_;
  EngineOptions options_ = test::small_cache(kContractRequests);
  Collector sink_;
  std::unique_ptr<Engine> holder_;
  std::unique_ptr<PeerServer> shared_;
  std::unique_ptr<Engine> engine_;
};

INSTANTIATE_TEST_SUITE_P(Connectors, ConnectorContract, testing::Combine(testing::ValuesIn(kContracted), testing::ValuesIn(played_modes())),
                         [](const auto& tested) {
                           return std::string(std::get<0>(tested.param).name) + "_" + std::get<1>(tested.param).name;
                         });

TEST_P(ConnectorContract, ChangesNoTokenOfAnyRequestAlsoAfterPreemption) {
  make();
  // How many blocks a small tier still has at a lookup depends on the machine's load.
  for (std::uint64_t round = 0; round == 0 || (round < 20 && engine_->stats().num_loads == 0); ++round) run(61 + 1000 * round);
  expect_nothing_left();
  EXPECT_GT(engine_->stats().num_stores, 5U) << "the test covers too few cases";
  EXPECT_GT(engine_->stats().num_loads, 0U);
  EXPECT_GT(engine_->stats().num_preemptions, 0U);
}

TEST_P(ConnectorContract, ChangesNoTokenWhenTransfersEndLateOrFail) {
  make({.late = 0.5, .failed = 0.25, .lost_stores = 0.0});
  // How many transfers there are depends on when they end.
  for (std::uint64_t round = 0; round < 10 && engine_->stats().num_failed_transfers <= 3; ++round) run(62 + 100 * round);
  expect_nothing_left();
  EXPECT_GT(engine_->stats().num_failed_transfers, 3U) << "the test covers too few cases";
}

TEST_P(ConnectorContract, BlocksNoRequestWhenAStoreNeverEnds) {
  make({.late = 0.0, .failed = 0.0, .lost_stores = 1.0});
  const EngineRequest request = make_request(20, 4);
  expect_equal(sink_.wait(engine_->submit(request, sink_).value()), expected(request));
  const EngineRequest other = make_request(20, 4, 60);
  expect_equal(sink_.wait(engine_->submit(other, sink_).value()), expected(other));
  EXPECT_EQ(engine_->stop(0.05), 0U) << "both requests have ended";
  EXPECT_GT(engine_->stats().num_open_transfers, 0U) << "the test covers too few cases";
}

TEST_P(ConnectorContract, ChangesNoTokenWhenTheCacheIsResetMeanwhile) {
  make({.late = 0.3, .failed = 0.0, .lost_stores = 0.0});
  std::vector<Answered> answers;
  run(63, [&](std::uint32_t i) {
    if (i % 10 != 9) return;
    engine_->reset_prefix_cache({.preempt_running = i % 20 == 9, .external = true}, answers.emplace_back().callback());
    if (i % 20 == 9) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  });
  expect_nothing_left();
}

TEST_P(ConnectorContract, LeavesNothingOfAbortedRequests) {
  make({.late = 0.5, .failed = 0.0, .lost_stores = 0.0});
  Random random(64);
  std::vector<RequestId> ids;
  for (std::uint32_t i = 0; i < kContractRequests; ++i) {
    ids.push_back(engine_->submit(random_request(random), sink_).value());
    if (random.chance(0.5)) engine_->finish(ids[random.below(ids.size())], FinishReason::abort);
  }
  for (const RequestId id : ids) sink_.wait(id);
  expect_nothing_left();
}

}  // namespace
}  // namespace quire
