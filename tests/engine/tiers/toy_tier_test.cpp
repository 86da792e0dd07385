// Tests a custom connector and transport in the engine: the tokens do not change, whether transfers succeed or fail. The simulated worker
// stops the program when a block does not hold what the plan says.
#include "support/toy_tier.h"

#include <gtest/gtest.h>

#include <memory>

#include "engine/simulated_engine.h"
#include "support/small_cache.h"

namespace quire {
namespace {

using test::kSmallRequests;
using test::small_cache;

class ToyTierTest : public testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, ToyTierTest, testing::ValuesIn(played_modes()), mode_name);

struct ToyEngine {
  ToyEngine(const Mode& mode, test::ToyOptions toy, EngineOptions options = small_cache(), ModelInfo model = simulated_model()) {
    toy.block_size = options.cache.block_size;
    toy.windows = group_windows(resolve_options(options, model, {1, 0}).value().layout);
    tier = std::make_shared<test::ToyTier>(toy);
    engine = start(mode, {.options = std::move(options),
                          .model = std::move(model),
                          .seams = {.connector = tier, .transport = tier},
                          .tolerates_garbage = true});
  }
  // Runs random requests of few families and counts the reasons why they ended.
  void run(std::uint64_t seed) {
    Random random(seed);
    std::map<RequestId, Expected> wanted;
    for (std::uint32_t i = 0; i < kSmallRequests; ++i) {
      const EngineRequest request = random_request(random);
      wanted[engine->submit(request, sink).value()] = expected(request);
    }
    for (const auto& [id, answer] : wanted) {
      const Collector::Answer given = sink.wait(id);
      if (given.reason == FinishReason::error) {
        EXPECT_EQ(given.error, "the KV cache blocks of the prompt could not be loaded");
        ++num_errors;
      } else {
        expect_equal(given, answer);
      }
    }
  }

  std::shared_ptr<test::ToyTier> tier;
  Collector sink;
  std::unique_ptr<Engine> engine;
  std::uint32_t num_errors = 0;
};

TEST_P(ToyTierTest, LoadsAndStoresChangeNoToken) {
  for (const double load_async : {0.0, 0.5, 1.0}) {
    ToyEngine toy(GetParam(), {.load_async = load_async, .seed = 3});
    toy.run(17);
    EXPECT_EQ(toy.num_errors, 0U);
    EXPECT_EQ(toy.engine->stop(60.0), 0U);
    const EngineStats stats = toy.engine->stats();
    EXPECT_GT(stats.num_loads, 10U) << "the test covers too few cases";
    EXPECT_GT(stats.num_stores, 50U);
    EXPECT_GT(toy.tier->num_overtaking(), 10U) << "transfers end in another order than they began";
    EXPECT_EQ(stats.bytes_loaded % (4 * sizeof(std::uint64_t)), 0U);
    EXPECT_GT(stats.num_preemptions, 0U);
    EXPECT_EQ(stats.num_awaiting_transfers, 0U);
    EXPECT_EQ(stats.num_open_transfers, 0U) << "also transfers that began at a request's end have ended";
    EXPECT_EQ(stats.num_free_blocks, stats.num_blocks);
  }
}

TEST_P(ToyTierTest, ComputesWaitingRequestsWhoseLoadsFail) {
  ToyEngine toy(GetParam(), {.load_async = 1.0, .seed = 5, .faults = {.failed = 0.3}});
  toy.run(18);
  EXPECT_EQ(toy.num_errors, 0U);
  EXPECT_EQ(toy.engine->stop(60.0), 0U);
  EXPECT_GT(toy.engine->stats().num_failed_transfers, 10U);
}

// Returns windows by cache group: full attention alone, with windows, and windows alone.
std::vector<std::vector<std::uint32_t>> window_mixes() {
  return {{0}, {10, 10, 0}, {14}};
}

ModelInfo with_windows(const std::vector<std::uint32_t>& windows) {
  ModelInfo model = simulated_model();
  model.num_layers = static_cast<std::uint32_t>(windows.size());
  model.sliding_windows = windows;
  return model;
}

EngineOptions windowed_cache(const std::vector<std::uint32_t>& windows, KvLoadFailurePolicy policy) {
  EngineOptions options = small_cache();
  options.cache.num_blocks = windows.size() > 1 ? 110 : 60;
  options.kv_load_failure = policy;
  return options;
}

// Results computed on corrupted blocks, and results derived from them, are not in any answer, the cache or the tier.
TEST_P(ToyTierTest, ComputesRequestsAgainThatExecutedOnFailedLoads) {
  for (const std::vector<std::uint32_t>& windows : window_mixes()) {
    for (const double load_async : {0.0, 0.5}) {
      ToyEngine toy(GetParam(), {.load_async = load_async, .seed = 7, .faults = {.failed = 0.3}},
                    windowed_cache(windows, KvLoadFailurePolicy::recompute), with_windows(windows));
      for (std::uint64_t round = 0; round < 10 && (round < 2 || toy.engine->stats().num_failed_transfers < 20); ++round)
        toy.run(19 + round);
      EXPECT_EQ(toy.num_errors, 0U);
      EXPECT_EQ(toy.engine->stop(60.0), 0U);
      EXPECT_GE(toy.engine->stats().num_failed_transfers, 20U) << "the test covers too few cases";
      EXPECT_EQ(toy.engine->stats().num_free_blocks, toy.engine->stats().num_blocks);
      EXPECT_EQ(toy.engine->stats().num_awaiting_transfers, 0U);
    }
  }
}

TEST_P(ToyTierTest, EndsOnlyAffectedRequestsInErrorUnderTheFailPolicy) {
  for (const std::vector<std::uint32_t>& windows : window_mixes()) {
    ToyEngine toy(GetParam(), {.load_async = 0.5, .seed = 7, .faults = {.failed = 0.3}}, windowed_cache(windows, KvLoadFailurePolicy::fail),
                  with_windows(windows));
    std::uint32_t num_rounds = 0;
    while (num_rounds < 10 && toy.num_errors == 0) toy.run(19 + num_rounds++);
    EXPECT_GT(toy.num_errors, 0U);
    EXPECT_LT(toy.num_errors, num_rounds * kSmallRequests / 2);
    EXPECT_EQ(toy.engine->stop(60.0), 0U);
    EXPECT_EQ(toy.engine->stats().num_free_blocks, toy.engine->stats().num_blocks);
  }
}

TEST_P(ToyTierTest, IgnoresCompletionsThatAreReportedTwice) {
  ToyEngine toy(GetParam(), {.load_async = 0.5, .seed = 9, .faults = {.twice = 0.5}});
  toy.run(20);
  EXPECT_EQ(toy.num_errors, 0U);
  EXPECT_EQ(toy.engine->stop(60.0), 0U);
  EXPECT_GT(toy.engine->stats().num_stray_transfers, 10U);
}

TEST_P(ToyTierTest, ShutdownLeavesOnlyOpenTransfers) {
  ToyEngine toy(GetParam(), {.load_async = 1.0, .longest_us = 200'000, .seed = 11});
  Random random(21);
  for (std::uint32_t i = 0; i < kSmallRequests; ++i) toy.engine->submit(random_request(random), toy.sink).value();
  toy.sink.wait(RequestId{3});
  toy.engine->stop(0.0);
  EXPECT_GT(toy.engine->stats().num_open_transfers, 0U) << "the test covers too few cases";
}

TEST_P(ToyTierTest, BlocksNoOtherRequestWhenATransferNeverEnds) {
  ToyEngine toy(GetParam(), {.load_async = 1.0, .longest_us = 0, .seed = 13, .faults = {.never = 1.0}});
  const EngineRequest request = make_request(20, 4);
  expect_equal(toy.sink.wait(toy.engine->submit(request, toy.sink).value()), expected(request));
  const EngineRequest other = make_request(20, 4, 60);
  expect_equal(toy.sink.wait(toy.engine->submit(other, toy.sink).value()), expected(other));
  EXPECT_EQ(toy.engine->stop(0.05), 0U) << "both requests have ended";
  EXPECT_GE(toy.engine->stats().num_open_transfers, 2U) << "the stores of both requests are open";
}

}  // namespace
}  // namespace quire
