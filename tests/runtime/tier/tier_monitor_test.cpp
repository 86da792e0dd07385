// Tests when a tier is used, paused and tried again, with a clock in the hands of the test, and the rate limit of its transfers.
#include "runtime/tier/tier_monitor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/tier/ended_transfers.h"
#include "runtime/tier/flaky_files.h"
#include "runtime/tier/rate_limiter.h"
#include "runtime/tier/tier_health.h"
#include "runtime/tier/tier_support.h"
#include "runtime/tier/toy_cache.h"

namespace quire::test {
namespace {

TEST(TierHealthRules, CountFailuresInARow) {
  TierHealth health;
  EXPECT_TRUE(health.is_enabled());
  EXPECT_FALSE(health.is_trial_due(1e9)) << "a tier in use needs no trial";
  health.note(0, 1, 1.0);
  health.note(0, 2, 1.0);
  health.note(0, 2, 1.0);  // nothing happened
  EXPECT_TRUE(health.is_enabled());
  health.note(1, 3, 1.0);  // as many successes as failures end the row
  health.note(1, 5, 1.0);
  EXPECT_TRUE(health.is_enabled());
  health.note(1, 6, 10.0);
  EXPECT_TRUE(health.is_disabled());
  EXPECT_EQ(health.num_times_disabled(), 1U);
  health.note(1, 60, 10.5);
  EXPECT_EQ(health.num_times_disabled(), 1U) << "failures during the pause do not count";
  EXPECT_FALSE(health.is_trial_due(10.999));
  EXPECT_TRUE(health.is_trial_due(11.0));
  TierHealth quiet;
  quiet.note(0, 2, 0.0);
  quiet.note(0, 2, 0.0);
  quiet.note(0, 3, 0.0);
  EXPECT_TRUE(quiet.is_disabled()) << "a time without results ends no row";
  TierHealth recovered;
  recovered.note(0, 2, 0.0);
  recovered.note(1, 2, 0.0);
  recovered.note(1, 4, 0.0);
  EXPECT_TRUE(recovered.is_enabled()) << "a success ends the row";
  TierHealth at_once;
  at_once.note(2, 5, 0.0);
  EXPECT_TRUE(at_once.is_disabled()) << "three failures at once, and fewer successes";
}

TEST(TierHealthRules, EndATrialByTheFirstResult) {
  TierHealth health;
  double now = 0.0;
  std::uint64_t failed = 3;
  health.note(0, failed, now);
  // The pause doubles after each failed trial, up to a minute.
  for (const double pause : {1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0}) {
    EXPECT_FALSE(health.is_trial_due(now + pause - 0.001)) << pause;
    now += pause;
    EXPECT_TRUE(health.is_trial_due(now)) << pause;
    health.begin_trial();
    EXPECT_FALSE(health.is_enabled());
    EXPECT_FALSE(health.is_disabled());
    EXPECT_FALSE(health.is_trial_due(now + 1000.0)) << "a trial is in progress";
    health.note(0, failed, now);
    EXPECT_FALSE(health.is_disabled()) << "no result yet";
    health.note(0, ++failed, now);
    EXPECT_TRUE(health.is_disabled());
  }
  EXPECT_EQ(health.num_times_disabled(), 9U);
  now += 60.0;
  health.begin_trial();
  health.note(1, failed, now);
  EXPECT_TRUE(health.is_enabled());
  health.note(1, failed + 3, now);
  EXPECT_FALSE(health.is_trial_due(now + 0.999));
  EXPECT_TRUE(health.is_trial_due(now + 1.0)) << "after a success the first pause is short again";
}

TEST(TierHealthRules, WaitForATierThatIsGone) {
  TierHealth health;
  health.set_gone(false, 1.0);
  EXPECT_TRUE(health.is_enabled());
  health.set_gone(true, 2.0);
  EXPECT_TRUE(health.is_disabled());
  EXPECT_EQ(health.num_times_disabled(), 1U);
  health.set_gone(true, 3.0);
  EXPECT_FALSE(health.is_trial_due(1000.0));
  health.set_gone(false, 1000.0);
  EXPECT_FALSE(health.is_trial_due(999.0));
  EXPECT_TRUE(health.is_trial_due(1000.0)) << "a trial is due immediately when it is there again";
  // A tier that was disabled before it went counts once.
  TierHealth failed;
  failed.note(0, 3, 0.0);
  failed.set_gone(true, 0.1);
  EXPECT_EQ(failed.num_times_disabled(), 1U);
  failed.set_gone(false, 0.2);
  EXPECT_TRUE(failed.is_trial_due(0.2));
  // A tier that goes during its trial is disabled again.
  failed.begin_trial();
  failed.set_gone(true, 0.3);
  EXPECT_TRUE(failed.is_disabled());
  EXPECT_EQ(failed.num_times_disabled(), 2U);
}

TEST(TierHealthRulesDeathTest, BeginATrialOnlyDuringAPause) {
  TierHealth health;
  EXPECT_DEATH(health.begin_trial(), "a trial begins only");
  health.set_gone(true, 0.0);
  EXPECT_DEATH(health.begin_trial(), "a trial begins only");
}

TEST(RateLimiterRules, LetBlocksBeginAtTheirRate) {
  using std::chrono::milliseconds;
  const RateLimiter::TimePoint begin = RateLimiter::TimePoint{} + std::chrono::hours(1);
  RateLimiter limiter(1000);  // one byte per millisecond
  EXPECT_TRUE(limiter.may_begin(begin));
  limiter.begin(50, begin);
  // 10 ms that were not used before make up for a thread that wakes up late.
  EXPECT_FALSE(limiter.may_begin(begin + milliseconds(39)));
  EXPECT_TRUE(limiter.may_begin(begin + milliseconds(40)));
  limiter.begin(20, begin + milliseconds(41));
  EXPECT_FALSE(limiter.may_begin(begin + milliseconds(59)));
  EXPECT_TRUE(limiter.may_begin(begin + milliseconds(60)));
  limiter.begin(30, begin + milliseconds(500));
  EXPECT_FALSE(limiter.may_begin(begin + milliseconds(519)));
  EXPECT_TRUE(limiter.may_begin(begin + milliseconds(520))) << "other time that was not used is lost";
  RateLimiter slowest(1);
  slowest.begin(1, begin);
  EXPECT_FALSE(slowest.may_begin(begin + milliseconds(989)));
  EXPECT_TRUE(slowest.may_begin(begin + milliseconds(990)));
  RateLimiter unlimited(0);
  unlimited.begin(1 << 30, begin);
  EXPECT_TRUE(unlimited.may_begin(begin));
  EXPECT_TRUE(unlimited.may_begin(RateLimiter::TimePoint{}));
}

TEST(EndedTransferList, ReportsEachEndOnceWithItsBadBlocks) {
  EndedTransfers ended;
  std::vector<TransferCompletion> over(1);
  ended.report(over);
  EXPECT_EQ(over.size(), 1U);
  ended.add({.transfer = TransferId{1}, .outcome = TransferOutcome::failed, .bytes = 7}, {BlockId{3}, BlockId{4}});
  ended.add({.transfer = TransferId{2}, .outcome = TransferOutcome::done, .bytes = 8}, {});
  ended.report(over);
  ASSERT_EQ(over.size(), 3U) << "ends are appended";
  EXPECT_EQ(over[1].transfer, TransferId{1});
  EXPECT_EQ(over[1].bytes, 7U);
  EXPECT_EQ(std::vector(over[1].bad_blocks.begin(), over[1].bad_blocks.end()), (std::vector{BlockId{3}, BlockId{4}}));
  EXPECT_EQ(over[2].outcome, TransferOutcome::done);
  EXPECT_TRUE(over[2].bad_blocks.empty());
  ended.add({.transfer = TransferId{3}}, {});
  over.clear();
  ended.report(over);
  ASSERT_EQ(over.size(), 1U);
  EXPECT_EQ(over[0].transfer, TransferId{3});
  ended.report(over);
  EXPECT_EQ(over.size(), 1U);
}

// A tier on a disk that can fail, with a monitor. The folder only has the file by which the monitor knows it.
class TierMonitorTest : public testing::Test {
 protected:
  void SetUp() override {
    std::ofstream(folder_.file("quire-blocks")) << "x";
    monitor_ = std::make_unique<TierMonitor>(store_, transport_, folder_.path());
  }
  TierOutcome run_one(TierJob::Verb verb, std::uint32_t place) {
    std::promise<TierOutcome> over;
    store_->submit({.verb = verb,
                    .place = place,
                    .name = tier_name(place),
                    .bytes = 4096,
                    .copy = [](std::span<std::byte>) { return true; },
                    .over = [&](TierOutcome outcome) { over.set_value(outcome); }});
    return over.get_future().get();
  }
  void store_blocks(std::uint32_t count) {
    for (std::uint32_t place = 0; place < count; ++place) ASSERT_EQ(run_one(TierJob::Verb::store, place), TierOutcome::done);
  }
  // Waits until the callbacks of all earlier loads have returned.
  void finish_loads() { EXPECT_EQ(run_one(TierJob::Verb::load, 100), TierOutcome::absent); }
  // Waits until this many loads have read their block.
  bool reads_come_to(std::uint64_t count) {
    return comes_true([&] { return store_->stats().num_read >= count; }) && store_->stats().num_read == count;
  }

  TempFolder folder_;
  std::shared_ptr<Flaws> flaws_ = std::make_shared<Flaws>();
  std::shared_ptr<MemoryDisk> disk_ = std::make_shared<MemoryDisk>();
  std::shared_ptr<DiskStore> store_ = DiskStore::open(std::make_unique<FlakyFiles>(disk_, flaws_),
                                                      {.budget_bytes = 1 << 20, .block_bytes = 4096, .fingerprint = tier_fingerprint()})
                                          .value();
  StoreTransport transport_{store_, 60.0};
  std::unique_ptr<TierMonitor> monitor_;
};

TEST_F(TierMonitorTest, ReportsEachChangeOfTheService) {
  EXPECT_FALSE(monitor_->look(0.0)) << "the tier is in use from the beginning";
  EXPECT_TRUE(monitor_->service().loads && monitor_->service().stores);
  store_blocks(3);
  flaws_->fails_writes = true;
  for (std::uint32_t place = 10; place < 13; ++place) EXPECT_EQ(run_one(TierJob::Verb::store, place), TierOutcome::failed);
  EXPECT_FALSE(monitor_->look(0.1)) << "as many stores have worked since the last look";
  for (std::uint32_t place = 10; place < 13; ++place) run_one(TierJob::Verb::store, place);
  EXPECT_TRUE(monitor_->look(0.2));
  EXPECT_TRUE(monitor_->service().loads);
  EXPECT_FALSE(monitor_->service().stores);
  EXPECT_EQ(monitor_->num_times_disabled(), 1U);
  EXPECT_FALSE(monitor_->look(1.1));
  EXPECT_FALSE(monitor_->service().stores);
  EXPECT_TRUE(monitor_->look(1.2)) << "the next stores are the trial";
  EXPECT_TRUE(monitor_->service().stores);
  run_one(TierJob::Verb::store, 10);
  EXPECT_TRUE(monitor_->look(1.3));
  EXPECT_FALSE(monitor_->service().stores) << "the trial has failed";
  EXPECT_EQ(monitor_->num_times_disabled(), 2U);
  flaws_->fails_writes = false;
  EXPECT_TRUE(monitor_->look(3.3));
  store_blocks(1);
  EXPECT_FALSE(monitor_->look(3.4));
  EXPECT_TRUE(monitor_->service().stores);
}

TEST_F(TierMonitorTest, TriesLoadsByReadingSomeBlocks) {
  store_blocks(20);
  monitor_->look(0.0);
  flaws_->fails_reads = true;
  for (std::uint32_t place = 0; place < 3; ++place) EXPECT_EQ(run_one(TierJob::Verb::load, place), TierOutcome::failed);
  EXPECT_TRUE(monitor_->look(0.5));
  EXPECT_FALSE(monitor_->service().loads);
  EXPECT_TRUE(monitor_->service().stores);
  EXPECT_EQ(store_->stats().num_failed_loads, 3U);
  EXPECT_FALSE(monitor_->look(1.4));
  EXPECT_EQ(store_->stats().num_failed_loads, 3U) << "no trial before the pause is over";
  EXPECT_FALSE(monitor_->look(1.5)) << "a trial of loads uses no request";
  EXPECT_TRUE(comes_true([&] { return store_->stats().num_failed_loads == 11; })) << "eight blocks are read";
  finish_loads();
  EXPECT_FALSE(monitor_->look(1.6));
  EXPECT_EQ(monitor_->num_times_disabled(), 2U);
  flaws_->fails_reads = false;
  EXPECT_FALSE(monitor_->look(3.6));
  EXPECT_TRUE(reads_come_to(8));
  EXPECT_TRUE(monitor_->look(3.7));
  EXPECT_TRUE(monitor_->service().loads);
  finish_loads();
  EXPECT_EQ(store_->stats().num_cancelled, 8U) << "the bytes are dropped";
}

TEST_F(TierMonitorTest, MeasuresOnRequestAndSeldom) {
  monitor_->look(0.0);
  monitor_->request_probe();
  EXPECT_FALSE(monitor_->look(0.1)) << "there is no block to read";
  store_blocks(20);
  EXPECT_FALSE(monitor_->look(10.0));
  EXPECT_EQ(store_->stats().num_read, 0U) << "a request is used once";
  monitor_->request_probe();
  monitor_->look(10.1);
  EXPECT_TRUE(reads_come_to(8));
  EXPECT_TRUE(comes_true([&] { return store_->stats().num_cancelled == 8; }));
  finish_loads();
  monitor_->request_probe();
  monitor_->look(15.0);
  finish_loads();
  EXPECT_EQ(store_->stats().num_read, 8U) << "five seconds are not over";
  for (std::uint64_t round = 2; round <= 5; ++round) {
    monitor_->request_probe();
    monitor_->look(10.0 + 5.2 * static_cast<double>(round));
    EXPECT_TRUE(comes_true([&] { return store_->stats().num_cancelled == 8 * round; })) << round;
    finish_loads();
  }
  EXPECT_EQ(store_->stats().num_read, 40U);
}

TEST_F(TierMonitorTest, ReadsAllBlocksInTurn) {
  store_blocks(20);
  double now_s = 0.0;
  std::uint64_t next = 0;
  for (std::uint64_t round = 1; round <= 5; ++round, now_s += 10.0) {
    monitor_->request_probe();
    monitor_->look(now_s);
    EXPECT_TRUE(reads_come_to(8 * round)) << round;
    finish_loads();
    const std::lock_guard lock(*disk_->mutex);
    std::vector<std::uint64_t> expected;
    for (int i = 0; i < 8; ++i) expected.push_back(4096 * (next++ % 20));
    std::ranges::sort(expected);
    std::ranges::sort(disk_->block_reads);
    EXPECT_EQ(disk_->block_reads, expected) << round;
    disk_->block_reads.clear();
  }
}

TEST_F(TierMonitorTest, DisablesATierWhoseFolderIsGoneOrAnother) {
  monitor_->look(0.0);
  EXPECT_FALSE(monitor_->is_gone());
  const std::string file = folder_.file("quire-blocks");
  std::filesystem::rename(file, folder_.file("kept"));
  EXPECT_FALSE(monitor_->look(0.9)) << "the folder is looked at once per second";
  EXPECT_TRUE(monitor_->look(1.0));
  EXPECT_TRUE(monitor_->is_gone());
  EXPECT_FALSE(monitor_->service().loads || monitor_->service().stores);
  EXPECT_EQ(monitor_->num_times_disabled(), 2U);
  std::ofstream(file) << "another folder";
  EXPECT_FALSE(monitor_->look(100.0));
  EXPECT_TRUE(monitor_->is_gone()) << "a file with the same name is not this tier";
  std::filesystem::rename(folder_.file("kept"), file);
  store_blocks(1);
  EXPECT_TRUE(monitor_->look(101.0));
  EXPECT_FALSE(monitor_->is_gone());
  EXPECT_TRUE(monitor_->service().stores) << "its trial begins immediately";
}

}  // namespace
}  // namespace quire::test
