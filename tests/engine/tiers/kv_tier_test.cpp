// Tests the engine's built-in disk tier: the tokens are the same as without it, and the next engine finds the blocks of the previous one.
// The simulated worker stops the program when a block does not hold what the plan says.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <thread>

#include "engine/simulated_engine.h"
#include "engine/tiers/disk_tier.h"
#include "engine/tiers/dram_tier.h"
#include "engine/tiers/tier_check.h"
#include "runtime/tier/tier_support.h"
#include "support/pipe.h"
#include "support/small_cache.h"

namespace quire {
namespace {

using test::kSmallBlock;
using test::kSmallBlockBytes;
using test::run_random;
using test::small_cache;
using test::small_layout;

ModelInfo windowed_tier_model(std::vector<std::uint32_t> windows) {
  ModelInfo model = simulated_model();
  model.num_layers = static_cast<std::uint32_t>(windows.size());
  model.sliding_windows = std::move(windows);
  return model;
}

CoreConfig tier_config(const ModelInfo& model = simulated_model(), const EngineOptions& options = small_cache()) {
  return resolve_options(options, model, {1, 0}).value().core;
}

Result<std::shared_ptr<DiskTier>> open_tier_in(const std::string& folder, std::uint64_t budget_bytes, std::uint8_t fingerprint = 1,
                                               KvTierPolicy policy = KvTierPolicy::exact, const CoreConfig& config = tier_config()) {
  return DiskTier::open({.folder = folder, .budget_bytes = budget_bytes, .policy = policy}, config, small_layout(config.kv.groups.size()),
                        test::tier_fingerprint(fingerprint));
}

std::unique_ptr<Engine> start_with_tier(const Mode& mode, const std::string& folder, std::uint64_t budget_bytes,
                                        std::shared_ptr<Logger> logger = nullptr, KvTierPolicy policy = KvTierPolicy::exact) {
  const std::shared_ptr<DiskTier> tier = open_tier_in(folder, budget_bytes, 1, policy).value();
  return start(mode,
               {.options = small_cache(),
                .seams = {.connector = KvTier::connector_of(tier), .transport = KvTier::transport_of(tier), .logger = std::move(logger)},
                .tiers = {tier}});
}

void wait_until_read(const Engine& engine) {
  while (engine.stats().kv_tiers.at(0).num_unread_slots > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// The load of an aborted request may end after the last answer.
KvTierStats stats_behind_loads(const Engine& engine) {
  for (int tries = 0;; ++tries) {
    const KvTierStats tier = engine.stats().kv_tiers.at(0);
    if (tier.tokens_loaded == tier.num_loaded_blocks * kSmallBlock || tries == 5000) return tier;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

class KvTierTest : public testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, KvTierTest, testing::ValuesIn(played_modes()), mode_name);

TEST_P(KvTierTest, ChangesNoTokenAndTheNextEngineFindsTheBlocks) {
  for (const auto& [budget_bytes, policy] :
       {std::pair(std::uint64_t{256} << 10, KvTierPolicy::exact), std::pair(std::uint64_t{16} << 20, KvTierPolicy::exact),
        std::pair(std::uint64_t{16} << 20, KvTierPolicy::measured)}) {
    const test::TempFolder folder;
    for (std::uint64_t run = 0; run < 3; ++run) {
      const std::unique_ptr<Engine> engine = start_with_tier(GetParam(), folder.path(), budget_bytes, nullptr, policy);
      const bool reads_first = run != 1;  // otherwise requests arrive while slots are unread
      if (reads_first) wait_until_read(*engine);
      const bool is_read = reads_first && policy == KvTierPolicy::exact;  // otherwise timing decides how many blocks are stored and loaded
      run_random(*engine, run == 2 ? 71 : 71 + run);
      const KvTierStats tier = stats_behind_loads(*engine);
      EXPECT_GE(tier.num_stored_blocks + tier.num_loaded_blocks, is_read ? 50U : 0U) << "the test covers too few cases";
      EXPECT_GE(tier.num_loaded_blocks, is_read ? 10U : 0U);
      EXPECT_EQ(tier.bytes_loaded, tier.num_loaded_blocks * kSmallBlockBytes);
      EXPECT_EQ(tier.tokens_loaded, tier.num_loaded_blocks * kSmallBlock);
      EXPECT_EQ(tier.num_corrupted_blocks, 0U);
      // Requests that arrive while slots are unread may end before any slot is read.
      if (policy == KvTierPolicy::exact && reads_first) EXPECT_EQ(tier.num_restored_blocks > 0, run > 0);
      EXPECT_LE(tier.num_used_slots, tier.num_places);
      EXPECT_LE(folder.disk_bytes(), budget_bytes);
    }
  }
}

// Tests host memory alone and above a disk.
TEST_P(KvTierTest, MemoryTiersServeBlocksThatTheCacheEvicted) {
  for (const bool has_disk : {false, true}) {
    const test::TempFolder folder;
    quire::Setup setup{.options = small_cache()};
    const std::uint32_t num_places = has_disk ? 20 : 2000;
    const KvDramOptions dram_options{.bytes = num_places * kSmallBlockBytes, .policy = KvTierPolicy::exact};
    setup.tiers.push_back(DramTier::create(dram_options, tier_config(), small_layout()).value());
    if (has_disk) setup.tiers.push_back(open_tier_in(folder.path(), 16 << 20).value());
    ASSERT_TRUE(connect_tiers(setup.tiers, setup.seams));
    const std::unique_ptr<Engine> engine = start(GetParam(), setup);
    if (has_disk)
      while (engine->stats().kv_tiers.at(1).num_unread_slots > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    Collector sink;
    Random random(72);
    std::vector<EngineRequest> requests;
    for (std::uint32_t i = 0; i < test::kSmallRequests; ++i) requests.push_back(random_request(random));
    for (std::uint32_t round = 0; round < 2; ++round)
      for (const EngineRequest& request : requests) expect_equal(sink.wait(engine->submit(request, sink).value()), expected(request));
    EXPECT_EQ(engine->stop(60.0), 0U);
    const EngineStats stats = engine->stats();
    EXPECT_EQ(stats.num_open_transfers, 0U);
    const KvTierStats dram = stats.kv_tiers.at(0);
    EXPECT_EQ(dram.name, "dram");
    EXPECT_EQ(dram.num_places, num_places);
    EXPECT_GT(dram.num_stored_blocks, 50U) << "the test covers too few cases";
    EXPECT_EQ(dram.num_corrupted_blocks + dram.num_failed_blocks, 0U);
    std::uint64_t loaded = dram.bytes_loaded;
    if (has_disk) {
      EXPECT_GT(stats.kv_tiers.at(1).num_loaded_blocks, 50U) << "blocks that host memory has no room for";
      loaded += stats.kv_tiers.at(1).bytes_loaded;
    }
    EXPECT_EQ(stats.bytes_loaded, loaded);
    EXPECT_GT(loaded, 0U);
  }
}

// Memory has twenty slots, and evicted blocks move to the disk. The engine finds parts of a prompt in both tiers.
TEST_P(KvTierTest, DemotesBlocksAndFindsThemInBothTiers) {
  for (const std::vector<std::uint32_t>& windows : {std::vector<std::uint32_t>{0}, {10, 10, 0}}) {
    const test::TempFolder folder;
    quire::Setup setup{.options = small_cache(), .model = windowed_tier_model(windows)};
    setup.options.cache.num_blocks = windows.size() > 1 ? 110 : 60;
    const CoreConfig config = tier_config(setup.model, setup.options);
    const auto dram = DramTier::create({.bytes = 20 * test::kSmallBlock * sizeof(std::uint64_t), .policy = KvTierPolicy::measured}, config,
                                       test::small_layout(config.kv.groups.size()))
                          .value();
    const auto disk = open_tier_in(folder.path(), 16 << 20, 1, KvTierPolicy::measured, config).value();
    disk->set_upper_tier(dram);
    setup.tiers = {dram, disk};
    ASSERT_TRUE(connect_tiers(setup.tiers, setup.seams, {}, true));
    const std::unique_ptr<Engine> engine = start(GetParam(), setup);
    while (engine->stats().kv_tiers.at(1).num_unread_slots > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    Collector sink;
    for (std::uint32_t round = 0; round < 30 && (round < 2 || engine->stats().kv_tiers.at(1).num_loaded_blocks == 0); ++round)
      expect_random_answers(*engine, sink, 80 + round % 2, test::kSmallRequests);
    EXPECT_EQ(engine->stop(60.0), 0U);
    const EngineStats stats = engine->stats();
    EXPECT_EQ(stats.num_free_blocks, stats.num_blocks);
    EXPECT_EQ(stats.num_open_transfers, 0U);
    const KvTierStats below = stats.kv_tiers.at(1);
    EXPECT_GT(below.num_demoted_blocks, 0U);
    EXPECT_EQ(below.num_stored_blocks >= below.num_demoted_blocks, true) << "demoted blocks count as stored";
    EXPECT_GT(below.num_loaded_blocks, 0U);
    EXPECT_EQ(below.num_corrupted_blocks + stats.kv_tiers.at(0).num_corrupted_blocks, 0U);
    EXPECT_LE(folder.disk_bytes(), 16U << 20U);
  }
}

// Preempted requests are swapped out to memory, and full blocks are stored on disk.
TEST_P(KvTierTest, SwapsRequestsWhileATierIsUsed) {
  for (const KvTierPolicy policy : {KvTierPolicy::exact, KvTierPolicy::measured}) {
    const test::TempFolder folder;
    quire::Setup setup{.options = small_cache()};
    setup.options.kv_swap = {.bytes = 16 * 200, .choice = SwapChoice::always};
    setup.tiers.push_back(open_tier_in(folder.path(), 16 << 20, 1, policy).value());
    ASSERT_TRUE(connect_tiers(setup.tiers, setup.seams));
    const std::unique_ptr<Engine> engine = start(GetParam(), setup);
    wait_until_read(*engine);
    const EngineStats stats = run_random(*engine, 73, 2);
    EXPECT_GT(stats.kv_swap->num_in, 5U) << "the test covers too few cases";
    EXPECT_EQ(stats.kv_swap->num_used_slots, 0U);
    if (policy == KvTierPolicy::exact) EXPECT_GT(stats.kv_tiers.at(0).num_loaded_blocks, 50U) << "the test covers too few cases";
    EXPECT_EQ(stats.kv_tiers.at(0).num_corrupted_blocks, 0U);
  }
}

// Windows are combined with full attention or used alone. The worker checks each block that it reads. The first run adds a memory tier.
TEST_P(KvTierTest, ChangesNoTokenOfModelsWithWindows) {
  for (const std::vector<std::uint32_t>& windows : {std::vector{24U, 24U, 0U}, std::vector{10U, 0U, 24U}, std::vector{40U, 40U}}) {
    const test::TempFolder folder;
    const ModelInfo model = windowed_tier_model(windows);
    EngineOptions options = small_cache();
    options.cache.num_blocks = windows.back() == 40 ? 50 : 170;
    const CoreConfig config = tier_config(model, options);
    for (std::uint64_t run = 0; run < 2; ++run) {
      quire::Setup setup{.options = options, .model = model};
      setup.tiers = {open_tier_in(folder.path(), 16 << 20, 1, KvTierPolicy::exact, config).value()};
      const KvDramOptions dram{.bytes = 40 * kSmallBlockBytes, .policy = KvTierPolicy::exact};
      if (run == 0) setup.tiers.push_back(DramTier::create(dram, config, small_layout(config.kv.groups.size())).value());
      ASSERT_TRUE(connect_tiers(setup.tiers, setup.seams));
      const std::unique_ptr<Engine> engine = start(GetParam(), setup);
      wait_until_read(*engine);
      const EngineStats stats = run_random(*engine, 71);
      const KvTierStats disk = stats.kv_tiers.at(0);
      EXPECT_GE(disk.num_stored_blocks, run == 0 ? 100U : 0U) << "the test covers too few cases";
      EXPECT_GE(disk.tokens_loaded, run == 1 ? 100U : 0U);
      EXPECT_EQ(disk.num_restored_blocks > 0, run == 1);
      EXPECT_EQ(disk.num_corrupted_blocks, 0U);
    }
  }
}

// Records when blocks of a request were first looked up and when requests were planned.
class TierTurns final : public EventSink {
 public:
  void on_event(const Event& event) override {
    if (event.what == EventKind::admission_tried && event.load_async) asked.emplace(event.owner, event.step.value);
  }
  void plan(const StepPlan& plan) {
    for (const ScheduledRequest& scheduled : plan.scheduled) {
      first.emplace(scheduled.id, plan.step.value);
      last[scheduled.id] = plan.step.value;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  std::map<RequestId, std::uint64_t> asked, first, last;  // steps
};

// One request runs at a time. The first one takes 200 steps.
TEST_P(KvTierTest, LoadsTheBlocksOfAQueuedRequestBeforeItsTurn) {
  const test::TempFolder folder;
  EngineRequest runs = make_request(20, 200, 100), waits = make_request(50, 20);
  runs.sampling.ignore_eos = true;
  for (const KvTierPolicy policy : {KvTierPolicy::exact, KvTierPolicy::exact, KvTierPolicy::measured}) {
    const auto turns = std::make_shared<TierTurns>();
    quire::Setup setup{.options = small_cache(), .before_step = [turns](const StepPlan& plan) { turns->plan(plan); }};
    setup.options.scheduler.max_num_seqs = 1;
    setup.options.cache.num_blocks = 120;
    setup.seams.events = turns;
    setup.tiers.push_back(open_tier_in(folder.path(), 1 << 20, 1, policy).value());
    ASSERT_TRUE(connect_tiers(setup.tiers, setup.seams));
    const std::unique_ptr<Engine> engine = start(GetParam(), setup);
    wait_until_read(*engine);
    const bool is_cold = engine->stats().kv_tiers.at(0).num_used_slots == 0;
    Collector sink;
    if (!is_cold) ++runs.prompt[0];  // no tier has this prompt
    const RequestId first = engine->submit(runs, sink).value(), second = engine->submit(waits, sink).value();
    expect_equal(sink.wait(first), expected(runs));
    const Collector::Answer answer = sink.wait(second);
    expect_equal(answer, expected(waits));
    EXPECT_EQ(answer.num_cached_tokens, is_cold ? 0U : 48U);
    EXPECT_EQ(engine->stop(60.0), 0U);
    EXPECT_EQ(engine->stats().num_preemptions, 0U);
    if (is_cold) continue;
    const std::uint64_t end = turns->last.at(first);
    if (policy == KvTierPolicy::exact) {
      EXPECT_GE(turns->asked.at(second), end);
    } else {
      EXPECT_LT(turns->asked.at(second), end - 100);
      EXPECT_LE(turns->first.at(second), end + 2) << "the request runs when its turn comes";
    }
  }
}

TEST_P(KvTierTest, ServesTheFirstRequestOfANewEngineFromDisk) {
  const test::TempFolder folder;
  const EngineRequest request = make_request(50, 20);
  for (const bool is_cold : {false, true}) {
    const std::unique_ptr<Engine> engine = start_with_tier(GetParam(), folder.path(), 1 << 20);
    wait_until_read(*engine);
    EXPECT_EQ(engine->stats().kv_tiers.at(0).num_used_slots > 0, is_cold) << "the slots are read without a step";
    Collector sink;
    const Collector::Answer answer = sink.wait(engine->submit(request, sink).value());
    expect_equal(answer, expected(request));
    EXPECT_EQ(answer.num_cached_tokens, is_cold ? 48U : 0U);
    EXPECT_EQ(engine->stats().kv_tiers.at(0).tokens_loaded, is_cold ? 48U : 0U);
    engine->stop(60.0);
  }
}

TEST_P(KvTierTest, TreatsChangedBytesAsMissesAndLogsThem) {
  const test::TempFolder folder;
  const EngineRequest request = make_request(50, 20);
  {
    const std::unique_ptr<Engine> engine = start_with_tier(GetParam(), folder.path(), 1 << 20);
    wait_until_read(*engine);
    Collector sink;
    sink.wait(engine->submit(request, sink).value());
    engine->stop(60.0);
    EXPECT_GT(engine->stats().kv_tiers.at(0).num_stored_blocks, 12U);
  }
  {
    std::fstream blocks(folder.file("quire-blocks"), std::ios::in | std::ios::out | std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(blocks), {}};
    for (char& byte : bytes) byte = static_cast<char>(byte ^ 4);
    blocks.seekp(0);
    blocks << bytes;
  }
  Pipe pipe;
  {
    const auto logger = std::make_shared<Logger>(LogOptions{.descriptor = pipe.writer()});
    const std::unique_ptr<Engine> engine = start_with_tier(GetParam(), folder.path(), 1 << 20, logger);
    wait_until_read(*engine);
    Collector sink;
    expect_equal(sink.wait(engine->submit(request, sink).value()), expected(request));
    engine->stop(60.0);
    EXPECT_EQ(engine->stats().kv_tiers.at(0).num_corrupted_blocks, 12U);
    EXPECT_EQ(engine->stats().kv_tiers.at(0).num_loaded_blocks, 0U);
  }
  std::string log;
  for (const std::string& line : pipe.lines()) log += line + "\n";
  EXPECT_NE(log.find("warning kv_tier_refused tier=disk count="), std::string::npos) << log;
}

TEST_P(KvTierTest, ForgetsItsBlocksOnAnExternalReset) {
  const test::TempFolder folder;
  const std::unique_ptr<Engine> engine = start_with_tier(GetParam(), folder.path(), 1 << 20);
  wait_until_read(*engine);
  Collector sink;
  const EngineRequest request = make_request(50, 1);
  sink.wait(engine->submit(request, sink).value());
  for (const bool external : {false, true}) {
    while (engine->stats().num_open_transfers > 0 || engine->stats().num_awaiting_transfers > 0) std::this_thread::yield();
    Answered reset;
    engine->reset_prefix_cache({.external = external}, reset.callback());
    EXPECT_TRUE(reset.wait().value());
    const Collector::Answer answer = sink.wait(engine->submit(request, sink).value());
    expect_equal(answer, expected(request));
    EXPECT_EQ(answer.num_cached_tokens, external ? 0U : 48U);
  }
  engine->stop(60.0);
}

// Loaded blocks are shared like computed blocks. Blocks that a child computes are stored under its hashes.
TEST_P(KvTierTest, SharesLoadedBlocksBetweenForks) {
  const test::TempFolder folder;
  EngineRequest request = make_request(30, 12);
  request.sampling.ignore_eos = true;
  request.n = 3;
  for (const bool is_warm : {false, true}) {
    const std::unique_ptr<Engine> engine = start_with_tier(GetParam(), folder.path(), 1 << 20);
    wait_until_read(*engine);
    Collector sink;
    const RequestId first = engine->submit(request, sink).value();
    for (std::uint32_t i = 0; i < 3; ++i) expect_equal(sink.wait(RequestId{first.value + i}), expected(request));
    EXPECT_EQ(sink.wait(first).num_cached_tokens, is_warm ? 28U : 0U);
    EXPECT_EQ(engine->stop(60.0), 0U);
    EXPECT_EQ(engine->stats().num_forks, 2U);
    EXPECT_EQ(engine->stats().kv_tiers.at(0).tokens_loaded, is_warm ? 28U : 0U) << "only the first request loads";
    EXPECT_EQ(engine->stats().num_free_blocks, engine->stats().num_blocks);
  }
}

std::string refusal_of(const Result<std::shared_ptr<DiskTier>>& tier) {
  return tier ? "" : tier.error().to_string();
}

TEST(KvTier, ReportsConfigurationsThatItCannotServe) {
  const test::TempFolder folder;
  CoreConfig config = tier_config();
  config.prefix_cache.enable_prefix_caching = false;
  EXPECT_NE(check_tier(config, "kv_disk").error().to_string().find("kv_disk: prefix caching is off"), std::string::npos);
  EXPECT_TRUE(check_tier(tier_config(), "kv_disk"));
  EXPECT_TRUE(check_tier(tier_config(windowed_tier_model({0, 8})), "kv_disk"));
  config = tier_config();
  config.kv.groups[0].spec = ChunkedLocalSpec{};
  const std::string groups = check_tier(config, "kv_disk").error().to_string();
  EXPECT_NE(groups.find("kv_disk: this model's KV cache cannot be stored: cache group 0 has an attention type that cannot be offloaded"),
            std::string::npos)
      << groups;
  {
    const auto tier = open_tier_in(folder.path(), 1 << 20);
    ASSERT_TRUE(tier) << tier.error().to_string();
    EXPECT_NE(refusal_of(open_tier_in(folder.path(), 1 << 20)).find("is using " + folder.path()), std::string::npos);
  }
  EXPECT_NE(refusal_of(open_tier_in(folder.path(), 1 << 20, 2)).find("kv_disk: the folder contains blocks of another model"),
            std::string::npos);
  EXPECT_NE(refusal_of(open_tier_in(folder.path(), 1000)).find("kv_disk_budget: 1000 bytes are too small for one block"),
            std::string::npos);
  EXPECT_NE(refusal_of(open_tier_in("/proc/nowhere", 1 << 20)).find("kv_disk: /proc/nowhere cannot be created"), std::string::npos);
}

TEST(KvTier, UsesAShareOfTheFreeSpaceWithoutABudget) {
  constexpr std::uint64_t kGiB = std::uint64_t{1} << 30U;
  EXPECT_EQ(default_tier_budget(40 * kGiB, 0, 1 << 20), 10 * kGiB);
  EXPECT_EQ(default_tier_budget(30 * kGiB, 10 * kGiB, 1 << 20), 10 * kGiB) << "the tier keeps the space that it uses already";
  EXPECT_EQ(default_tier_budget(4000 * kGiB, 0, 1 << 20), 64 * kGiB);
  EXPECT_EQ(default_tier_budget(4000 * kGiB, 0, 4096), 4 * kGiB) << "each slot needs some memory";
}

TEST(TierBlockFormat, UniqueNamesGetASuffixOnlyWhenTheNameIsTaken) {
  std::set<std::string> taken;
  EXPECT_EQ(unique_name("Offload", taken), "Offload");
  EXPECT_EQ(unique_name("OffloadB", taken), "OffloadB") << "another name with the same prefix";
  EXPECT_EQ(unique_name("Off", taken), "Off");
  EXPECT_EQ(unique_name("Offload", taken), "Offload_2");
  EXPECT_EQ(unique_name("Offload_2", taken), "Offload_2_2");
  EXPECT_EQ(unique_name("Offload", taken), "Offload_3");
}

}  // namespace
}  // namespace quire
