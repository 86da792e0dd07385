// Tests preempted requests that are swapped out: their tokens do not change, also when transfers fail. The simulated worker stops the
// program when a block does not hold what the plan says.
#include "engine/tiers/kv_swap.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>

#include "engine/simulated_engine.h"
#include "runtime/tier/tier_support.h"
#include "runtime/tier/toy_cache.h"
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

// Two cache groups with blocks of 6,000 and 9,000 bytes.
KvLayout swap_layout() {
  KvLayout layout = test::two_groups();
  std::swap(layout.groups[0], layout.groups[1]);
  return layout;
}

TEST(KvSwapSlots, HoldABlockOfTheLargestGroup) {
  constexpr std::uint32_t kMost = 1U << 24U;
  for (const auto& [bytes, num_slots] : {std::pair(std::uint64_t{0}, 0U),
                                         {8999, 0},
                                         {9000, 1},
                                         {17999, 1},
                                         {9000 * std::uint64_t{kMost} - 1, kMost - 1},
                                         {9000 * std::uint64_t{kMost} + 9000, kMost}})
    EXPECT_EQ(num_memory_swap_slots({.bytes = bytes}, swap_layout()), num_slots) << bytes;
  EXPECT_EQ(num_memory_swap_slots({.bytes = 9000}, {}), 0U) << "there are no blocks";
  EXPECT_EQ(num_disk_swap_slots({.folder_bytes = 1 << 20}, swap_layout()), 0U) << "no folder is set";
  const std::uint32_t num_slow = num_disk_swap_slots({.folder = "/x", .folder_bytes = 1 << 20}, swap_layout());
  EXPECT_EQ(num_slow, num_slots_within(1 << 20, 12288)) << "the files have whole pages";
  EXPECT_EQ(num_swap_slots({.bytes = 18000, .folder = "/x", .folder_bytes = 1 << 20}, swap_layout()), 2 + num_slow);
  EXPECT_EQ(num_disk_swap_slots({.bytes = 9000 * std::uint64_t{kMost - 5}, .folder = "/x", .folder_bytes = 1 << 20}, swap_layout()), 5U);
}

TEST(KvSwapSlots, CountTheCoresSwapsAndMeasureTheirSpeed) {
  CoreCounters counters;
  counters.num_used_swap_slots = 1;
  counters.num_swapped_out = 2, counters.num_swapped_out_blocks = 3;
  counters.num_swapped_in = 4, counters.num_swapped_in_blocks = 5, counters.num_swapped_in_tokens = 6;
  counters.num_swaps_lost = 7, counters.num_swaps_no_slot = 8, counters.num_swaps_no_gain = 9;
  for (const auto& [has_memory, has_files] : {std::pair(true, false), {false, true}, {true, true}}) {
    SCOPED_TRACE(std::string(has_memory ? "memory " : "") + (has_files ? "files" : ""));
    const test::TempFolder folder;
    const KvSwapOptions options{
        .bytes = has_memory ? 27000U : 0U, .folder = has_files ? folder.path() : "", .folder_bytes = std::uint64_t{1} << 20U};
    const auto swap = KvSwap::create(options, swap_layout()).value();
    const KvSwapStats stats = swap->stats(counters);
    const std::uint32_t num_slow = has_files ? num_disk_swap_slots(options, swap_layout()) : 0;
    EXPECT_EQ(stats.num_places, (has_memory ? 3 : 0) + num_slow);
    EXPECT_EQ(stats.num_slow_slots, num_slow);
    EXPECT_EQ(stats.place_bytes, 9000U);
    EXPECT_EQ(stats.num_used_slots, 1U);
    EXPECT_EQ(stats.num_out, 2U);
    EXPECT_EQ(stats.num_out_blocks, 3U);
    EXPECT_EQ(stats.num_in, 4U);
    EXPECT_EQ(stats.num_in_blocks, 5U);
    EXPECT_EQ(stats.num_in_tokens, 6U);
    EXPECT_EQ(stats.num_lost, 7U);
    EXPECT_EQ(stats.num_skipped_no_slot, 8U);
    EXPECT_EQ(stats.num_skipped_no_gain, 9U);
    EXPECT_EQ(stats.num_corrupted_blocks, 0U);
    EXPECT_EQ(stats.out_bytes_per_s > 0.0 && stats.in_bytes_per_s > 0.0, has_memory);
    EXPECT_EQ(stats.disk_out_bytes_per_s > 0.0 && stats.disk_in_bytes_per_s > 0.0, has_files);
    EXPECT_EQ(swap->costs(123.0), (SwapCosts{.out_bytes_per_s = stats.out_bytes_per_s,
                                             .in_bytes_per_s = stats.in_bytes_per_s,
                                             .disk_out_bytes_per_s = stats.disk_out_bytes_per_s,
                                             .disk_in_bytes_per_s = stats.disk_in_bytes_per_s,
                                             .prefill_tokens_per_s = 123.0}));
  }
}

// Runs one transfer of block 1 to or from a slot, and returns how it ended.
TransferOutcome move_swapped(Transport& transport, TransferDirection direction, std::uint64_t slot) {
  static std::uint64_t last_id = 1000;
  const std::vector<BlockId> blocks{BlockId{1}};
  const std::vector<std::uint64_t> places{slot};
  const TransferId id{++last_id};
  transport.start({.id = id, .request = {}, .direction = direction, .group = 1, .tier = kSwapTier, .blocks = blocks, .places = places});
  transport.wait(id);
  std::vector<TransferCompletion> over;
  transport.poll(over);
  EXPECT_EQ(over.size(), 1U);
  return over.empty() ? TransferOutcome::failed : over[0].outcome;
}

TEST(KvSwapSlots, CountChangedBytesAsCorruptedBlocks) {
  const test::TempFolder folder;
  for (const std::uint64_t bytes : {0U, 9000U}) {
    const auto swap = KvSwap::create({.bytes = bytes, .folder = folder.path(), .folder_bytes = 1 << 20}, swap_layout()).value();
    const auto transport = swap->transport_with(nullptr);
    test::ToyCache cache;
    cache.layout = swap_layout();
    cache.fill(BlockId{1}, 5);
    transport->attach(cache.pages(), [] {});
    EXPECT_EQ(move_swapped(*transport, TransferDirection::store, 1), TransferOutcome::done);
    cache.fill(BlockId{1}, 6);
    EXPECT_EQ(move_swapped(*transport, TransferDirection::load, 1), TransferOutcome::done);
    EXPECT_TRUE(cache.holds(BlockId{1}, 5, 1));
    {
      std::fstream blocks(folder.file("quire-swap/quire-blocks"), std::ios::in | std::ios::out | std::ios::binary);
      std::string content{std::istreambuf_iterator<char>(blocks), {}};
      for (char& byte : content) byte = static_cast<char>(byte ^ 4);
      blocks.clear();
      blocks.seekp(0);
      blocks << content;
    }
    EXPECT_EQ(move_swapped(*transport, TransferDirection::load, 1), TransferOutcome::failed);
    EXPECT_EQ(swap->stats({}).num_corrupted_blocks, 1U);
    transport->detach();
  }
}

TEST(KvSwapFiles, KeepOtherFilesAndTheFilesOfARunningProcess) {
  const test::TempFolder folder;
  const KvSwapOptions options{.folder = folder.path(), .folder_bytes = 1 << 20};
  const std::string files = folder.file("quire-swap");
  std::filesystem::create_directory(files);
  std::ofstream(files + "/quire-blocks.txt") << "notes";
  {
    const auto swap = KvSwap::create(options, swap_layout());
    ASSERT_TRUE(swap) << swap.error().to_string();
    const auto second = KvSwap::create(options, swap_layout());
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().field, "kv_swap_disk");
    EXPECT_NE(second.error().message.find("is using"), std::string::npos) << second.error().message;
    EXPECT_TRUE(std::filesystem::exists(files + "/quire-table"));
  }
  EXPECT_FALSE(std::filesystem::exists(files + "/quire-table"));
  EXPECT_TRUE(std::filesystem::exists(files + "/quire-blocks.txt")) << "a file of another program stays";
}

TEST(KvSwapOptionsTest, ErrorsNameTheOption) {
  KvLayout huge = swap_layout();
  huge.page_bytes[0] = std::uint64_t{2} << 30U;
  const auto memory = KvSwap::create({.bytes = std::uint64_t{4} << 30U}, huge);
  ASSERT_FALSE(memory);
  EXPECT_EQ(memory.error().field, "kv_swap");
  EXPECT_EQ(memory.error().remedy, "use another size, or leave it out");
  const auto nowhere = KvSwap::create({.folder = "/proc/nowhere"}, swap_layout());
  ASSERT_FALSE(nowhere);
  EXPECT_TRUE(nowhere.error().to_string().starts_with("kv_swap_disk: /proc/nowhere/quire-swap cannot be created"))
      << nowhere.error().to_string();
  const test::TempFolder folder;
  const auto small = KvSwap::create({.folder = folder.path(), .folder_bytes = 1000}, swap_layout());
  ASSERT_FALSE(small);
  EXPECT_EQ(small.error().field, "kv_swap_disk");
  EXPECT_NE(small.error().remedy.find("use at least"), std::string::npos) << small.error().remedy;
}

}  // namespace
}  // namespace quire
