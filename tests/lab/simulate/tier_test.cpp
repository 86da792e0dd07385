// Tests a memory tier next to the cache: its savings and costs, and that no request waits forever.
#include "lab/lab_support.h"

namespace quire {
namespace {

using test::request_at;
using test::small_options;

// The workload is a prompt of four blocks, other prompts that evict it from a cache of 12 blocks, and the same prompt again.
Workload evicting_workload() {
  Workload workload =
      test::workload_of({request_at(0.0, 64, 2), request_at(50.0, 160, 2), request_at(100.0, 160, 2), request_at(150.0, 65, 2)});
  workload.id_tokens = 16;
  workload.runs = {{100, 4}, {200, 10}, {300, 10}, {100, 5}};
  for (std::uint32_t i = 0; i < workload.requests.size(); ++i) workload.requests[i].first_run = i, workload.requests[i].num_runs = 1;
  return workload;
}

SimulationOptions with_tier(bool async) {
  SimulationOptions options = small_options(async);
  options.num_blocks = 13;
  options.kv_bytes_per_token = 64;  // 1,024 bytes per block
  options.tier = {.bytes = 1 << 20, .load_bytes_per_s = 4096.0, .store_bytes_per_s = 1e9, .latency_s = 0.25};
  return options;
}

TEST(Tier, LoadsEvictedBlocks) {
  for (const bool async : {false, true}) {
    SimulationOptions options = with_tier(async);
    SimulationOptions without = options;
    without.tier.bytes = 0;
    const auto loaded = simulate(evicting_workload(), options).value(), computed = simulate(evicting_workload(), without).value();
    EXPECT_EQ(computed.requests[3].cached_tokens, 0U);
    EXPECT_EQ(loaded.loaded_tokens, 64U);
    EXPECT_EQ(loaded.loaded_bytes, 4096U);
    EXPECT_EQ(loaded.num_finished, 4U);
    // Computing 65 tokens takes two steps of 1 + 6.4 and 1.5 s. Loading takes 1 + 0.25 s, then one step with one row.
    EXPECT_DOUBLE_EQ(computed.requests[3].first_token_s - 150.0, 8.9);
    EXPECT_DOUBLE_EQ(loaded.requests[3].first_token_s - 150.0, 1.25 + 1.5);
  }
}

// The request arrives while the last step of the only other request is in flight, and its load takes longer. Plans are empty until the load
// ends; the next plan follows immediately.
TEST(Tier, LoopSleepsWhileOnlyALoadIsInFlight) {
  Workload workload = evicting_workload();
  workload.requests[3].start_s = 1300.0;
  workload.requests.insert(workload.requests.begin() + 3, request_at(1290.0, 10, 3));
  SimulationOptions options = with_tier(true);
  options.worker.prefill_token_s = 1.0;         // runs from 1290 to 1301, 1302.5 and 1304
  options.tier.load_bytes_per_s = 4096 / 30.0;  // runs from 1301 to 1331
  const auto result = simulate(workload, options).value();
  EXPECT_EQ(result.num_finished, 5U);
  EXPECT_EQ(result.loaded_tokens, 64U);
  EXPECT_NEAR(result.requests[4].first_token_s, 1301.0 + 30.25 + 1.5, 1e-9);
}

TEST(Tier, DoesNotLoadWhenComputingIsFaster) {
  SimulationOptions options = with_tier(true);
  options.tier.load_bytes_per_s = 100.0;  // loading takes 41 s, computing 6.4 s
  EXPECT_EQ(simulate(evicting_workload(), options).value().loaded_tokens, 0U);
  // Computing 64 tokens takes 6.4 s. At 640 bytes per second, loading takes as long.
  options.tier.load_bytes_per_s = 639.0;
  EXPECT_EQ(simulate(evicting_workload(), options).value().loaded_tokens, 0U);
  options.tier.load_bytes_per_s = 640.0;
  EXPECT_EQ(simulate(evicting_workload(), options).value().loaded_tokens, 64U);
}

TEST(Tier, EveryRequestEndsUnderPressureWithTierAndSwap) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    SimulationOptions options = with_tier(seed != 2);
    options.num_blocks = 40;
    options.tier.load_bytes_per_s = 1e5;
    options.tier.swap_bytes = 1 << 16;
    options.tier.swap_choice = SwapChoice::always;
    const Workload workload = test::random_workload(seed, 300);
    const auto result = simulate(workload, options).value();
    EXPECT_EQ(result.num_stuck, 0U);
    EXPECT_EQ(result.num_finished + result.num_refused, workload.requests.size());
    EXPECT_GT(result.num_swapped_out, 0U);
    EXPECT_EQ(simulation_json(result, options), simulation_json(simulate(workload, options).value(), options));
  }
}

TEST(Tier, RefusesInvalidOptions) {
  SimulationOptions options = with_tier(true);
  options.tier.eviction_policy = "random";
  EXPECT_FALSE(simulate(evicting_workload(), options).has_value());
  options = with_tier(true);
  options.tier.load_bytes_per_s = 0.0;
  EXPECT_EQ(simulate(evicting_workload(), options).error().field, "load_bytes_per_s");
  options = with_tier(true);
  options.kv_bytes_per_token = 0;
  EXPECT_EQ(simulate(evicting_workload(), options).error().field, "kv_bytes_per_token");
}

}  // namespace
}  // namespace quire
