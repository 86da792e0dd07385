// Tests the offloading connector in the engine with a tier whose transfers end late, out of order or with a failure: the tokens do not
// change. The simulated worker stops the program when a block does not hold what the plan says.
#include "core/connect/offload_connector.h"

#include <gtest/gtest.h>

#include <memory>

#include "engine/simulated_engine.h"
#include "support/small_cache.h"
#include "support/toy_tier.h"

namespace quire {
namespace {

class OffloadConnectorTest : public testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, OffloadConnectorTest, testing::ValuesIn(played_modes()), mode_name);

struct OffloadEngine {
  OffloadEngine(const Mode& mode, const OffloadConnectorOptions& offload, const test::ToyFaults& faults) {
    connector = OffloadConnector::create(offload, test::small_config(), 1).value();
    tier = std::make_shared<test::ToyTier>(test::ToyOptions{.block_size = test::kSmallBlock, .seed = 23, .faults = faults});
    engine = start(mode, {.options = test::small_cache(), .seams = {.connector = connector, .transport = tier}});
  }
  void run(std::uint64_t seed) {
    test::run_random(*engine, seed);
    EXPECT_EQ(connector->num_tracked(), 0U);
    connector->ledger().check_invariants();
  }

  std::shared_ptr<OffloadConnector> connector;
  std::shared_ptr<test::ToyTier> tier;
  std::unique_ptr<Engine> engine;
};

TEST_P(OffloadConnectorTest, ChangesNoToken) {
  std::uint64_t seed = 31;
  for (const std::uint32_t block_size : {4U, 8U}) {
    for (const std::uint64_t size : {16U, 400U}) {
      OffloadEngine o(
          GetParam(),
          {.cpu_bytes_to_use = size, .block_size = block_size, .eviction_policy = size == 16 ? "lru" : "arc", .join_loads = size == 16},
          {});
      const auto has_met_all = [&] {
        return o.connector->counters().num_stored > 30 && o.engine->stats().num_preemptions > 0 &&
               (size != 400 || (o.engine->stats().num_loads > 10 && o.connector->counters().num_loaded > 20));
      };
      // How many blocks are stored depends on the thread timing on a busy machine.
      for (int run = 0; run < 5 && !has_met_all() && !HasFailure(); ++run) o.run(++seed);
      EXPECT_TRUE(has_met_all()) << o.connector->counters().num_stored << " stored, " << o.connector->counters().num_loaded << " loaded";
    }
  }
}

TEST_P(OffloadConnectorTest, ChangesNoTokenWhenTransfersFail) {
  OffloadEngine o(GetParam(), {.cpu_bytes_to_use = 400}, {.failed = 0.3});
  o.run(41);
  EXPECT_GT(o.connector->counters().num_failed_loads, 3U) << "the test covers too few cases";
  EXPECT_GT(o.connector->counters().num_failed_stores, 10U);
}

}  // namespace
}  // namespace quire
