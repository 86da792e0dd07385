// Tests preempted requests that are swapped out: their tokens do not change, also when transfers fail. The simulated worker stops the
// program when a block does not hold what the plan says.
#include "engine/tiers/kv_swap.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <mutex>

#include "engine/simulated_engine.h"
#include "runtime/tier/tier_support.h"
#include "support/faulty_transport.h"
#include "support/small_cache.h"
#include "support/toy_tier.h"

namespace quire {
namespace {

class KvSwapTest : public testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, KvSwapTest, testing::ValuesIn(played_modes()), mode_name);

EngineOptions swapping(SwapChoice choice = SwapChoice::always) {
  EngineOptions options = test::small_cache();
  options.kv_swap = {.bytes = 16 * 200, .choice = choice};  // a block of the model has 16 bytes
  return options;
}

EngineStats run_squeezed(Engine& engine, std::uint64_t seed) {
  const EngineStats stats = test::run_random(engine, seed);
  EXPECT_EQ(stats.kv_swap->num_used_slots, 0U);
  return stats;
}

TEST_P(KvSwapTest, ChangesNoTokenUnderPressure) {
  const auto engine = start(GetParam(), {.options = swapping()});
  const EngineStats stats = run_squeezed(*engine, 1);
  EXPECT_GT(stats.num_preemptions, 20U);
  EXPECT_GT(stats.kv_swap->num_out, 20U);
  EXPECT_GT(stats.kv_swap->num_in, 10U);
  EXPECT_GT(stats.kv_swap->num_in_tokens, stats.kv_swap->num_in_blocks);
  EXPECT_EQ(stats.kv_swap->num_corrupted_blocks, 0U);
  EXPECT_GT(stats.kv_swap->out_bytes_per_s, 0.0);
}

// Slots are in memory and on disk, or on disk only. The files are removed with the engine, and files of an earlier process do not matter.
TEST_P(KvSwapTest, UsesSlotsInFiles) {
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{16 * 20}}) {
    const test::TempFolder folder;
    EngineOptions options = swapping();
    options.kv_swap.bytes = bytes;
    options.kv_swap.folder = folder.path();
    options.kv_swap.folder_bytes = 2 << 20;
    for (std::uint64_t run = 0; run < 2; ++run) {
      auto engine = start(GetParam(), {.options = options});
      EXPECT_EQ(engine->stats().kv_swap->num_places - engine->stats().kv_swap->num_slow_slots, bytes / 16);
      EXPECT_GT(engine->stats().kv_swap->num_slow_slots, 100U);
      const EngineStats stats = test::run_random(*engine, 1 + run);
      EXPECT_GT(stats.kv_swap->num_out, 20U);
      EXPECT_GT(stats.kv_swap->num_in, 10U);
      EXPECT_EQ(stats.kv_swap->num_corrupted_blocks, 0U);
      EXPECT_LE(folder.disk_bytes(), options.kv_swap.folder_bytes + 8192);
      engine.reset();
      EXPECT_FALSE(std::filesystem::exists(folder.path() + "/quire-swap/quire-blocks"));
    }
  }
}

TEST(KvSwapFiles, AreRemovedAtExitAndAfterAKilledProcess) {
  const test::TempFolder folder;
  const KvSwapOptions options{.folder = folder.path(), .folder_bytes = 2 << 20};
  const std::string files = folder.file("quire-swap"), left = folder.file("left");
  {
    const auto swap = KvSwap::create(options, test::small_layout());
    ASSERT_TRUE(swap.has_value()) << swap.error().to_string();
    std::filesystem::copy(files, left, std::filesystem::copy_options::recursive);
  }
  EXPECT_FALSE(std::filesystem::exists(files)) << "a process that ends removes its files";
  // The files remain like after a killed process, and the next process serves another model.
  std::filesystem::rename(left, files);
  KvLayout other = test::small_layout();
  other.page_bytes[0] *= 3;
  {
    const auto swap = KvSwap::create(options, other);
    ASSERT_TRUE(swap.has_value()) << swap.error().to_string();
    EXPECT_LE(folder.disk_bytes(), (2U << 20U) + 16384) << "the files of one process, not of two";
  }
  EXPECT_FALSE(std::filesystem::exists(files));
}

TEST_P(KvSwapTest, DecidesByMeasuredCosts) {
  const auto engine = start(GetParam(), {.options = swapping(SwapChoice::measured)});
  const EngineStats stats = run_squeezed(*engine, 2);
  EXPECT_EQ(stats.kv_swap->num_out + stats.kv_swap->num_skipped_no_slot + stats.kv_swap->num_skipped_no_gain, stats.num_preemptions);
}

TEST_P(KvSwapTest, ChangesNoTokenWhenTransfersFailOrEndLate) {
  const auto engine =
      start(GetParam(), {.options = swapping(), .swap_through = [](std::shared_ptr<Transport> memory) -> std::shared_ptr<Transport> {
                           return std::make_shared<test::FaultyTransport>(std::move(memory), test::EndFaults{.late = 0.6, .failed = 0.3});
                         }});
  const EngineStats stats = run_squeezed(*engine, 3);
  EXPECT_GT(stats.kv_swap->num_lost, 3U);
  EXPECT_GT(stats.kv_swap->num_in, 3U);
}

TEST_P(KvSwapTest, WorksWithTheTransfersOfAConnector) {
  const auto tier = std::make_shared<test::ToyTier>(test::ToyOptions{.block_size = 4});
  const auto engine = start(GetParam(), {.options = swapping(), .seams = {.connector = tier, .transport = tier}});
  const EngineStats stats = run_squeezed(*engine, 5);
  EXPECT_GT(stats.kv_swap->num_in, 3U);
  EXPECT_GT(stats.num_loads, stats.kv_swap->num_in);
}

TEST_P(KvSwapTest, StopsAdmissionUnderPressureAndChangesNoToken) {
  EngineOptions options = swapping();
  options.pressure = {.admission_watermark = 0.05, .pressure_high = 0.7, .pressure_low = 0.4, .pressure_preempts = true};
  const auto engine = start(GetParam(), {.options = options});
  const EngineStats stats = run_squeezed(*engine, 4);
  EXPECT_GT(stats.num_admission_stops, 3U);
}

TEST(KvSwapOptionsTest, AreCheckedWhenTheEngineIsCreated) {
  EngineOptions options = swapping();
  options.kv_swap.bytes = 15;
  EXPECT_EQ(resolve_options(options, simulated_model(), {1, 0}).error().field, "kv_swap");
  options.kv_swap.bytes = 16;
  EXPECT_TRUE(resolve_options(options, simulated_model(), {1, 0}).has_value());
  options.pressure.pressure_high = 0.95;
  EXPECT_EQ(resolve_options(options, simulated_model(), {1, 0})->options.pressure.pressure_low, 0.8);
  options.pressure.pressure_high = 1.5;
  EXPECT_EQ(resolve_options(options, simulated_model(), {1, 0}).error().field, "pressure.pressure_high");
}

}  // namespace
}  // namespace quire
