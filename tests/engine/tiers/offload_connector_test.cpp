// The offloading connector in the engine, before a tier whose transfers end late, out of order and not always well: the tokens are those
// without it. The simulated worker stops the program when a block does not hold what the plan says.
#include "core/connect/offload_connector.h"

#include <gtest/gtest.h>

#include <memory>

#include "engine/simulated_engine.h"
#include "support/toy_tier.h"

namespace quire {
namespace {

constexpr std::uint32_t kOffloadRequests = 150;

class OffloadConnectorTest : public testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, OffloadConnectorTest, testing::ValuesIn(kModes), mode_name);

struct OffloadEngine {
  // So few blocks that requests are preempted, and prefixes forgotten.
  OffloadEngine(const Mode& mode, const OffloadConnectorOptions& offload, const test::ToyFaults& faults) {
    EngineOptions options;
    options.cache.block_size = 4;
    options.cache.num_blocks = 60;
    options.scheduler.max_num_seqs = 8;
    options.scheduler.max_num_batched_tokens = 48;
    options.scheduler.max_num_waiting = kOffloadRequests;
    CoreConfig config;
    FullAttentionSpec spec;
    config.block_size = spec.block_size = options.cache.block_size;
    config.kv.groups = {{.layer_names = {"layer"}, .spec = spec, .layer_specs = {}}};
    connector = OffloadConnector::create(offload, config, 1).value();
    tier = std::make_shared<test::ToyTier>(test::ToyOptions{.block_size = options.cache.block_size, .seed = 23, .faults = faults});
    engine = start(mode, {.options = std::move(options), .seams = {.connector = connector, .transport = tier}});
  }
  void run(std::uint64_t seed) {
    Collector sink;
    expect_random_answers(*engine, sink, seed, kOffloadRequests);
    EXPECT_EQ(engine->stop(60.0), 0U);
    const EngineStats stats = engine->stats();
    EXPECT_EQ(stats.num_free_blocks, stats.num_blocks);
    EXPECT_EQ(stats.num_open_transfers, 0U);
    EXPECT_EQ(connector->num_tracked(), 0U);
    connector->ledger().check_invariants();
  }

  std::shared_ptr<OffloadConnector> connector;
  std::shared_ptr<test::ToyTier> tier;
  std::unique_ptr<Engine> engine;
};

TEST_P(OffloadConnectorTest, TokensAreThoseWithoutIt) {
  std::uint64_t seed = 31;
  for (const std::uint32_t block_size : {4U, 8U}) {
    for (const std::uint64_t size : {16U, 400U}) {
      OffloadEngine o(
          GetParam(),
          {.cpu_bytes_to_use = size, .block_size = block_size, .eviction_policy = size == 16 ? "lru" : "arc", .join_loads = size == 16},
          {});
      o.run(++seed);
      EXPECT_GT(o.connector->counters().num_stored, 30U) << "too little was met";
      EXPECT_GT(o.engine->stats().num_preemptions, 0U);
      if (size == 400) {
        EXPECT_GT(o.engine->stats().num_loads, 10U);
        EXPECT_GT(o.connector->counters().num_loaded, 20U);
      }
    }
  }
}

TEST_P(OffloadConnectorTest, TransfersThatFailChangeNoToken) {
  OffloadEngine o(GetParam(), {.cpu_bytes_to_use = 400}, {.failed = 0.3});
  o.run(41);
  EXPECT_GT(o.connector->counters().num_failed_loads, 3U) << "too little was met";
  EXPECT_GT(o.connector->counters().num_failed_stores, 10U);
}

}  // namespace
}  // namespace quire
