// The engine's own disk tier: the tokens are those without it, whatever goes to disk and comes back, and what one engine has computed the
// next one finds. The simulated worker stops the program when a block does not hold what the plan says.
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
  return core_config(resolve_options(options, model, {1, 0}).value(), model);
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
  while (engine.stats().kv_tiers.at(0).num_unread_places > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// The load of a request that was aborted may end behind the last answer.
KvTierStats stats_behind_loads(const Engine& engine) {
  for (int tries = 0;; ++tries) {
    const KvTierStats tier = engine.stats().kv_tiers.at(0);
    if (tier.tokens_loaded == tier.num_loaded_blocks * kSmallBlock || tries == 5000) return tier;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

class KvTierTest : public testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, KvTierTest, testing::ValuesIn(kModes), mode_name);

TEST_P(KvTierTest, TokensAreThoseWithoutItAndTheNextEngineFindsThem) {
  for (const auto& [budget_bytes, policy] :
       {std::pair(std::uint64_t{256} << 10, KvTierPolicy::exact), std::pair(std::uint64_t{16} << 20, KvTierPolicy::exact),
        std::pair(std::uint64_t{16} << 20, KvTierPolicy::measured)}) {
    const test::TempFolder folder;
    for (std::uint64_t run = 0; run < 3; ++run) {
      const std::unique_ptr<Engine> engine = start_with_tier(GetParam(), folder.path(), budget_bytes, nullptr, policy);
      const bool reads_first = run != 1;  // else requests come while places are unread
      if (reads_first) wait_until_read(*engine);
      const bool is_read = reads_first && policy == KvTierPolicy::exact;  // else times decide how much is stored and loaded
      run_random(*engine, run == 2 ? 71 : 71 + run);
      const KvTierStats tier = stats_behind_loads(*engine);
      EXPECT_GE(tier.num_stored_blocks + tier.num_loaded_blocks, is_read ? 50U : 0U) << "too little was met";
      EXPECT_GE(tier.num_loaded_blocks, is_read ? 10U : 0U);
      EXPECT_EQ(tier.bytes_loaded, tier.num_loaded_blocks * kSmallBlockBytes);
      EXPECT_EQ(tier.tokens_loaded, tier.num_loaded_blocks * kSmallBlock);
      EXPECT_EQ(tier.num_refused_blocks, 0U);
      // What comes while places are unread may end before any is read.
      if (policy == KvTierPolicy::exact && reads_first) EXPECT_EQ(tier.num_restored_blocks > 0, run > 0);
      EXPECT_LE(tier.num_used_places, tier.num_places);
      EXPECT_LE(folder.disk_bytes(), budget_bytes);
    }
  }
}

// Host memory alone, and above a disk.
TEST_P(KvTierTest, MemoryTiersGiveBackWhatTheCacheForgot) {
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
      while (engine->stats().kv_tiers.at(1).num_unread_places > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
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
    EXPECT_GT(dram.num_stored_blocks, 50U) << "too little was met";
    EXPECT_EQ(dram.num_refused_blocks + dram.num_failed_blocks, 0U);
    std::uint64_t loaded = dram.bytes_loaded;
    if (has_disk) {
      EXPECT_GT(stats.kv_tiers.at(1).num_loaded_blocks, 50U) << "what host memory has no room for";
      loaded += stats.kv_tiers.at(1).bytes_loaded;
    }
    EXPECT_EQ(stats.bytes_loaded, loaded);
    EXPECT_GT(loaded, 0U);
  }
}

// Twenty places in memory, and what has to leave them is found on disk: by this engine, part of a prompt here and part there, and by the
// next.
TEST_P(KvTierTest, BlocksMoveDownAsTheyCoolAndAreFoundWhereTheyAre) {
  for (const std::vector<std::uint32_t>& windows : {std::vector<std::uint32_t>{0}, {10, 10, 0}}) {
    const test::TempFolder folder;
    quire::Setup setup{.options = small_cache(), .model = windowed_tier_model(windows)};
    setup.options.cache.num_blocks = windows.size() > 1 ? 110 : 60;
    const CoreConfig config = tier_config(setup.model, setup.options);
    const auto dram = DramTier::create({.bytes = 20 * test::kSmallBlock * sizeof(std::uint64_t), .policy = KvTierPolicy::measured}, config,
                                       test::small_layout(config.kv.groups.size()))
                          .value();
    const auto disk = open_tier_in(folder.path(), 16 << 20, 1, KvTierPolicy::measured, config).value();
    disk->take_from(dram);
    setup.tiers = {dram, disk};
    ASSERT_TRUE(connect_tiers(setup.tiers, setup.seams, {}, true));
    const std::unique_ptr<Engine> engine = start(GetParam(), setup);
    while (engine->stats().kv_tiers.at(1).num_unread_places > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    Collector sink;
    for (std::uint32_t round = 0; round < 30 && (round < 2 || engine->stats().kv_tiers.at(1).num_loaded_blocks == 0); ++round)
      expect_random_answers(*engine, sink, 80 + round % 2, test::kSmallRequests);
    EXPECT_EQ(engine->stop(60.0), 0U);
    const EngineStats stats = engine->stats();
    EXPECT_EQ(stats.num_free_blocks, stats.num_blocks);
    EXPECT_EQ(stats.num_open_transfers, 0U);
    const KvTierStats below = stats.kv_tiers.at(1);
    EXPECT_GT(below.num_taken_blocks, 0U);
    EXPECT_EQ(below.num_stored_blocks >= below.num_taken_blocks, true) << "nothing else goes there";
    EXPECT_GT(below.num_loaded_blocks, 0U);
    EXPECT_EQ(below.num_refused_blocks + stats.kv_tiers.at(0).num_refused_blocks, 0U);
    EXPECT_LE(folder.disk_bytes(), 16U << 20U);
  }
}

// Whole requests go to memory when they are preempted, and blocks to the disk as they fill.
TEST_P(KvTierTest, SwapGoesOnBesideATier) {
  for (const KvTierPolicy policy : {KvTierPolicy::exact, KvTierPolicy::measured}) {
    const test::TempFolder folder;
    quire::Setup setup{.options = small_cache()};
    setup.options.kv_swap = {.bytes = 16 * 200, .choice = SwapChoice::always};
    setup.tiers.push_back(open_tier_in(folder.path(), 16 << 20, 1, policy).value());
    ASSERT_TRUE(connect_tiers(setup.tiers, setup.seams));
    const std::unique_ptr<Engine> engine = start(GetParam(), setup);
    wait_until_read(*engine);
    const EngineStats stats = run_random(*engine, 73, 2);
    EXPECT_GT(stats.kv_swap->num_in, 5U) << "too little was met";
    EXPECT_EQ(stats.kv_swap->num_used_places, 0U);
    if (policy == KvTierPolicy::exact) EXPECT_GT(stats.kv_tiers.at(0).num_loaded_blocks, 50U) << "too little was met";
    EXPECT_EQ(stats.kv_tiers.at(0).num_refused_blocks, 0U);
  }
}

// Windows beside full attention, and alone; the worker sees each block that it reads. First with a tier in memory beside the disk.
TEST_P(KvTierTest, TokensOfWindowedModelsAreThoseWithoutItToo) {
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
      EXPECT_GE(disk.num_stored_blocks, run == 0 ? 100U : 0U) << "too little was met";
      EXPECT_GE(disk.tokens_loaded, run == 1 ? 100U : 0U);
      EXPECT_EQ(disk.num_restored_blocks > 0, run == 1);
      EXPECT_EQ(disk.num_refused_blocks, 0U);
    }
  }
}

// When blocks of a request were first asked for, and when requests were planned.
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

// One request at a time; the first one takes 200 steps.
TEST_P(KvTierTest, AQueuedRequestsBlocksHaveComeBeforeItsTurn) {
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
    const bool is_cold = engine->stats().kv_tiers.at(0).num_used_places == 0;
    Collector sink;
    if (!is_cold) ++runs.prompt[0];  // nobody has this one
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
      EXPECT_LE(turns->first.at(second), end + 2) << "it runs when its turn comes";
    }
  }
}

TEST_P(KvTierTest, AColdEngineAnswersItsFirstRequestFromDisk) {
  const test::TempFolder folder;
  const EngineRequest request = make_request(50, 20);
  for (const bool is_cold : {false, true}) {
    const std::unique_ptr<Engine> engine = start_with_tier(GetParam(), folder.path(), 1 << 20);
    wait_until_read(*engine);
    EXPECT_EQ(engine->stats().kv_tiers.at(0).num_used_places > 0, is_cold) << "without a step";
    Collector sink;
    const Collector::Answer answer = sink.wait(engine->submit(request, sink).value());
    expect_equal(answer, expected(request));
    EXPECT_EQ(answer.num_cached_tokens, is_cold ? 48U : 0U);
    EXPECT_EQ(engine->stats().kv_tiers.at(0).tokens_loaded, is_cold ? 48U : 0U);
    engine->stop(60.0);
  }
}

TEST_P(KvTierTest, OtherBytesThanWereStoredAreMissesAndTheLogTells) {
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
    EXPECT_EQ(engine->stats().kv_tiers.at(0).num_refused_blocks, 12U);
    EXPECT_EQ(engine->stats().kv_tiers.at(0).num_loaded_blocks, 0U);
  }
  std::string log;
  for (const std::string& line : pipe.lines()) log += line + "\n";
  EXPECT_NE(log.find("warning kv_tier_refused count="), std::string::npos) << log;
}

TEST_P(KvTierTest, AResetForgetsIt) {
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

// Blocks that have been loaded are shared like those that were computed, and what a child computes is stored under its names.
TEST_P(KvTierTest, ForksShareWhatWasLoaded) {
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
    EXPECT_EQ(engine->stats().kv_tiers.at(0).tokens_loaded, is_warm ? 28U : 0U) << "by the first of them alone";
    EXPECT_EQ(engine->stats().num_free_blocks, engine->stats().num_blocks);
  }
}

std::string refusal_of(const Result<std::shared_ptr<DiskTier>>& tier) {
  return tier ? "" : tier.error().to_string();
}

TEST(KvTier, WhatItCannotBeIsSaid) {
  const test::TempFolder folder;
  CoreConfig config = tier_config();
  config.prefix_cache.enable_prefix_caching = false;
  EXPECT_NE(check_tier(config, "kv_disk").error().to_string().find("kv_disk: prefix caching is off"), std::string::npos);
  EXPECT_TRUE(check_tier(tier_config(), "kv_disk"));
  EXPECT_TRUE(check_tier(tier_config(windowed_tier_model({0, 8})), "kv_disk"));
  config = tier_config();
  config.kv.groups[0].spec = ChunkedLocalSpec{};
  const std::string groups = check_tier(config, "kv_disk").error().to_string();
  EXPECT_NE(groups.find("kv_disk: this model's KV cache cannot be stored: the layers of group 0 keep neither"), std::string::npos)
      << groups;
  {
    const auto tier = open_tier_in(folder.path(), 1 << 20);
    ASSERT_TRUE(tier) << tier.error().to_string();
    EXPECT_NE(refusal_of(open_tier_in(folder.path(), 1 << 20)).find("uses " + folder.path()), std::string::npos);
  }
  EXPECT_NE(refusal_of(open_tier_in(folder.path(), 1 << 20, 2)).find("kv_disk: the folder holds blocks of another model"),
            std::string::npos);
  EXPECT_NE(refusal_of(open_tier_in(folder.path(), 1000)).find("kv_disk_budget: 1000 bytes have no room for a block"), std::string::npos);
  EXPECT_NE(refusal_of(open_tier_in("/proc/nowhere", 1 << 20)).find("kv_disk: /proc/nowhere cannot be made"), std::string::npos);
}

TEST(KvTier, WithoutABudgetItTakesAShareOfWhatIsFree) {
  constexpr std::uint64_t kGiB = std::uint64_t{1} << 30U;
  EXPECT_EQ(default_tier_budget(40 * kGiB, 0, 1 << 20), 10 * kGiB);
  EXPECT_EQ(default_tier_budget(30 * kGiB, 10 * kGiB, 1 << 20), 10 * kGiB) << "what is its own stays its own";
  EXPECT_EQ(default_tier_budget(4000 * kGiB, 0, 1 << 20), 64 * kGiB);
  EXPECT_EQ(default_tier_budget(4000 * kGiB, 0, 4096), 4 * kGiB) << "each place costs some memory";
}

}  // namespace
}  // namespace quire
