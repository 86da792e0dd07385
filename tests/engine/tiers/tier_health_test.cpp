// Tests when a tier is disabled and enabled again: first the rules, then a disk that fails, hangs or is missing.
#include "runtime/tier/tier_health.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "engine/simulated_engine.h"
#include "engine/tiers/disk_tier.h"
#include "runtime/tier/flaky_files.h"
#include "runtime/tier/tier_monitor.h"
#include "runtime/tier/tier_support.h"
#include "support/pipe.h"
#include "support/small_cache.h"

namespace quire {
namespace {

TEST(TierHealth, DisablesATierAfterThreeFailuresInARow) {
  TierHealth health;
  health.note(0, 2, 1.0);
  EXPECT_TRUE(health.is_enabled());
  health.note(5, 2, 2.0);
  health.note(5, 4, 3.0);
  EXPECT_TRUE(health.is_enabled()) << "a success in between ends the row";
  health.note(6, 6, 4.0);
  EXPECT_TRUE(health.is_disabled()) << "there are more failures than successes";
  EXPECT_EQ(health.num_times_disabled(), 1U);
  health.note(50, 6, 5.0);
  EXPECT_TRUE(health.is_disabled()) << "transfers that began before prove nothing";
}

TEST(TierHealth, IgnoresFewFailuresAmongManySuccesses) {
  TierHealth health;
  for (std::uint64_t i = 1; i <= 100; ++i) health.note(10 * i, 3 * i, static_cast<double>(i));
  EXPECT_TRUE(health.is_enabled());
}

TEST(TierHealth, DoublesPausesUpToAMinuteAndResetsThemAfterASuccess) {
  TierHealth health;
  std::uint64_t num_failed = 3;
  double now = 0.0;
  health.note(0, num_failed, now);
  for (const double pause : {1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0}) {
    EXPECT_FALSE(health.is_trial_due(now + 0.99 * pause));
    now += pause;
    ASSERT_TRUE(health.is_trial_due(now));
    health.begin_trial();
    EXPECT_FALSE(health.is_enabled());
    EXPECT_FALSE(health.is_disabled());
    health.note(0, ++num_failed, now);
    EXPECT_TRUE(health.is_disabled()) << "one failure ends the trial";
  }
  now += 60.0;
  health.begin_trial();
  health.note(0, num_failed, now);
  EXPECT_FALSE(health.is_enabled()) << "no success is reported yet";
  health.note(1, num_failed, now);
  EXPECT_TRUE(health.is_enabled());
  health.note(1, num_failed + 3, now);
  EXPECT_TRUE(health.is_trial_due(now + 1.0));
}

TEST(TierHealth, DoesNotTryAMissingFolderUntilItIsBack) {
  TierHealth health;
  health.set_gone(true, 1.0);
  EXPECT_TRUE(health.is_disabled());
  EXPECT_FALSE(health.is_trial_due(1000.0));
  health.set_gone(true, 2.0);
  EXPECT_EQ(health.num_times_disabled(), 1U);
  health.set_gone(false, 1000.0);
  EXPECT_TRUE(health.is_trial_due(1000.0));
}

constexpr std::uint64_t kWatchedBlock = 4096;

// A store on a flaky disk that holds one block, with a monitor.
struct Watched {
  std::shared_ptr<test::Flaws> flaws = std::make_shared<test::Flaws>();
  test::TempFolder folder;
  std::shared_ptr<DiskStore> store =
      DiskStore::open(std::make_unique<test::FlakyFiles>(std::make_shared<test::MemoryDisk>(), flaws),
                      {.budget_bytes = 1 << 20, .block_bytes = kWatchedBlock, .fingerprint = test::tier_fingerprint()})
          .value();
  StoreTransport transport = StoreTransport(store, 60.0);
  std::unique_ptr<TierMonitor> watch;
  double now = 0.0;

  Watched() {
    EXPECT_EQ(run(TierJob::Verb::store), TierOutcome::done);
    watch = std::make_unique<TierMonitor>(store, transport, folder.path());
    watch->look(now);
  }
  TierOutcome run(TierJob::Verb verb) const {
    std::promise<TierOutcome> over;
    store->submit({.verb = verb,
                   .place = 3,
                   .name = test::tier_name(3),
                   .bytes = kWatchedBlock,
                   .copy = [](std::span<std::byte>) { return true; },
                   .over = [&over](TierOutcome outcome) { over.set_value(outcome); }});
    return over.get_future().get();
  }
  // Polls the monitor until it reports the given service.
  void wait_for(const TierService& service, double step_s) {
    while (watch->service() != service) {
      now += step_s;
      watch->look(now);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
};

TEST(TierMonitor, DisablesLoadsAndTriesThemOnStoredBlocks) {
  Watched w;
  w.flaws->fails_reads = true;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(w.run(TierJob::Verb::load), TierOutcome::failed);
  EXPECT_TRUE(w.watch->look(0.1));
  EXPECT_EQ(w.watch->service(), (TierService{.loads = false, .stores = true}));
  const std::uint64_t num_failed = w.store->stats().num_failed_loads;
  w.now = 2.0;
  while (w.store->stats().num_failed_loads == num_failed) {
    w.watch->look(w.now += 1.0);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  w.watch->look(w.now);
  EXPECT_FALSE(w.watch->service().loads) << "the trial failed";
  w.flaws->fails_reads = false;
  w.wait_for({}, 1.0);
  EXPECT_EQ(w.store->stats().num_loaded, 0U) << "no request has loaded a block";
  EXPECT_GT(w.store->stats().num_read, 0U);
}

TEST(TierMonitor, DisablesStoresAndTriesTheNextOne) {
  Watched w;
  w.flaws->fails_writes = true;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(w.run(TierJob::Verb::store), TierOutcome::failed);
  w.watch->look(0.1);
  EXPECT_EQ(w.watch->service(), (TierService{.loads = true, .stores = false}));
  w.watch->look(1.0);
  EXPECT_FALSE(w.watch->service().stores);
  w.watch->look(1.2);
  EXPECT_TRUE(w.watch->service().stores);
  EXPECT_EQ(w.run(TierJob::Verb::store), TierOutcome::failed);
  w.watch->look(1.3);
  EXPECT_FALSE(w.watch->service().stores);
  w.flaws->fails_writes = false;
  w.watch->look(3.4);
  EXPECT_EQ(w.run(TierJob::Verb::store), TierOutcome::done);
  w.watch->look(3.5);
  EXPECT_TRUE(w.watch->service().stores);
  EXPECT_EQ(w.watch->num_times_disabled(), 2U);
}

// A hanging trial lasts until the disk continues.
TEST(TierMonitor, EnablesAHangingDiskAgainWhenItContinues) {
  Watched w;
  w.flaws->fails_reads = true;
  for (int i = 0; i < 3; ++i) w.run(TierJob::Verb::load);
  w.flaws->fails_reads = false;
  w.flaws->hangs = true;
  for (int i = 0; i < 200; ++i) w.watch->look(w.now += 1.0);
  EXPECT_FALSE(w.watch->service().loads);
  w.flaws->hangs = false;
  w.store->submit({.verb = TierJob::Verb::load, .place = 1, .name = {}, .bytes = 1, .copy = {}, .over = [](TierOutcome) {}});
  w.wait_for({}, 1.0);
}

TEST(TierMonitor, DisablesAMissingFolderUntilItIsBack) {
  Watched w;
  const std::string aside = w.folder.path() + "-aside";
  {
    std::ofstream(w.folder.file("quire-blocks")) << "blocks";
  }
  TierMonitor watch(w.store, w.transport, w.folder.path());
  watch.look(0.0);
  EXPECT_EQ(watch.service(), TierService{});
  std::filesystem::rename(w.folder.path(), aside);
  watch.look(1.5);
  EXPECT_EQ(watch.service(), (TierService{.loads = false, .stores = false}));
  EXPECT_TRUE(watch.is_gone());
  std::filesystem::create_directory(w.folder.path());
  {
    std::ofstream(w.folder.file("quire-blocks")) << "others";
  }
  watch.look(3.0);
  EXPECT_TRUE(watch.is_gone()) << "another folder has the same name";
  std::filesystem::remove_all(w.folder.path());
  std::filesystem::rename(aside, w.folder.path());
  double now = 4.5;
  watch.look(now);
  EXPECT_FALSE(watch.is_gone());
  EXPECT_TRUE(watch.service().stores);
  while (!watch.service().loads) {
    watch.look(now += 0.1);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Requests are answered while the disk fails. The log reports the failure, and stored blocks are found when the disk is back.
TEST(DisabledTier, EngineContinuesWithoutTheTierAndEnablesItAgain) {
  EngineOptions options;
  options.cache.block_size = test::kSmallBlock;
  options.cache.num_blocks = test::kSmallBlocks;
  const auto flaws = std::make_shared<test::Flaws>();
  const CoreConfig config = resolve_options(options, simulated_model(), {1, 0}).value().core;
  const std::shared_ptr<DiskTier> tier = DiskTier::open_on(std::make_unique<test::FlakyFiles>(std::make_shared<test::MemoryDisk>(), flaws),
                                                           {.folder = "/nowhere", .budget_bytes = 1 << 20, .policy = KvTierPolicy::exact},
                                                           config, test::small_layout(), test::tier_fingerprint())
                                             .value();
  Pipe pipe;
  {
    const std::unique_ptr<Engine> engine =
        start(kModes[1], {.options = options,
                          .seams = {.connector = KvTier::connector_of(tier),
                                    .transport = KvTier::transport_of(tier),
                                    .logger = std::make_shared<Logger>(LogOptions{.descriptor = pipe.writer()})},
                          .tiers = {tier}});
    Collector sink;
    const auto answer = [&](const EngineRequest& request) {
      const Collector::Answer found = sink.wait(engine->submit(request, sink).value());
      expect_equal(found, expected(request));
      Answered reset;
      while (engine->stats().num_open_transfers > 0 || engine->stats().num_awaiting_transfers > 0) std::this_thread::yield();
      engine->reset_prefix_cache({}, reset.callback());
      EXPECT_TRUE(reset.wait().value());
      return found.num_cached_tokens;
    };
    const EngineRequest lasting = make_request(50, 5);
    while (engine->stats().kv_tiers.at(0).num_unread_slots > 0) std::this_thread::yield();
    answer(lasting);
    EXPECT_EQ(answer(lasting), 48U);
    flaws->fails_reads = flaws->fails_writes = true;
    TokenId first = 60;
    const auto answer_another = [&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // each failure writes a log line, and lost lines prove nothing
      answer(make_request(20, 2, ++first));
    };
    while (!engine->stats().kv_tiers.at(0).stores_left_out) answer_another();
    EXPECT_GE(engine->stats().kv_tiers.at(0).num_failed_blocks, 3U);
    EXPECT_GE(engine->stats().kv_tiers.at(0).num_times_disabled, 1U);
    flaws->fails_reads = flaws->fails_writes = false;
    while (engine->stats().kv_tiers.at(0).stores_left_out || engine->stats().kv_tiers.at(0).loads_left_out) answer_another();
    answer(lasting);
    EXPECT_EQ(answer(lasting), 48U);
    EXPECT_EQ(engine->stop(60.0), 0U);
  }
  std::string log;
  for (const std::string& line : pipe.lines()) log += line + "\n";
  EXPECT_NE(log.find("warning kv_tier_left_out tier=disk what=stores"), std::string::npos) << log;
  EXPECT_NE(log.find("kv_tier_back tier=disk what=stores"), std::string::npos) << log;
}

}  // namespace
}  // namespace quire
