// Tests how questions, loads and trials of a shared store are counted.
#include "runtime/remote/shared_store_counters.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "runtime/tier/tier_support.h"

namespace quire::test {
namespace {

TierJob counted_job(TierJob::Verb verb, std::uint64_t number, std::uint32_t bytes) {
  return {.verb = verb, .place = 0, .name = tier_name(number), .bytes = bytes, .copy = {}, .over = {}};
}

std::vector<std::uint64_t> counts_of(const SharedStoreStats& stats) {
  return {stats.num_stored, stats.num_loaded,  stats.bytes_stored,  stats.bytes_loaded,      stats.num_answered_loads,
          stats.num_absent, stats.num_refused, stats.num_cancelled, stats.num_failed_stores, stats.num_failed_loads,
          stats.num_asked,  stats.num_found,   stats.bytes_read};
}

TEST(SharedStoreCounters, CountsEachOutcomeOnce) {
  constexpr auto kStore = TierJob::Verb::store, kLoad = TierJob::Verb::load;
  struct Case {
    TierJob::Verb verb;
    TierOutcome outcome;
    std::vector<std::uint64_t> counts;  // in the order of counts_of()
  };
  const std::vector<Case> cases = {{kStore, TierOutcome::done, {1, 0, 50, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
                                   {kStore, TierOutcome::failed, {0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0}},
                                   {kStore, TierOutcome::cancelled, {0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0}},
                                   {kLoad, TierOutcome::done, {0, 1, 0, 50, 1, 0, 0, 0, 0, 0, 0, 0, 0}},
                                   {kLoad, TierOutcome::absent, {0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0}},
                                   {kLoad, TierOutcome::refused, {0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0}},
                                   {kLoad, TierOutcome::failed, {0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0}},
                                   {kLoad, TierOutcome::cancelled, {0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0}}};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SharedStoreCounters counters;
    for (std::uint64_t times = 1; times <= 2; ++times) {
      if (cases[i].verb == kLoad) counters.load_started();
      counters.ended(counted_job(cases[i].verb, 1, 50), cases[i].outcome);
      std::vector<std::uint64_t> expected = cases[i].counts;
      for (std::uint64_t& count : expected) count *= times;
      EXPECT_EQ(counts_of(counters.stats()), expected) << "case " << i;
    }
  }
}

TEST(SharedStoreCounters, AddsQuestionsAnswersAndBytes) {
  SharedStoreCounters counters;
  counters.asked(3);
  counters.asked(4);
  counters.found(2);
  counters.found(9);
  counters.read(100);
  counters.read(11);
  EXPECT_EQ(counts_of(counters.stats()), (std::vector<std::uint64_t>{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 11, 111}));
}

TEST(SharedStoreCounters, MeasuresTheTimeWhileALoadIsOpen) {
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); };
  const auto begin = std::chrono::steady_clock::now();
  SharedStoreCounters counters;
  counters.ended(counted_job(TierJob::Verb::store, 1, 8), TierOutcome::done);
  EXPECT_EQ(counters.stats().loading_s, 0.0) << "stores do not count";
  counters.load_started();
  pause();
  counters.load_started();
  const double first = counters.stats().loading_s;
  EXPECT_GT(first, 0.0);
  pause();
  counters.ended(counted_job(TierJob::Verb::load, 1, 8), TierOutcome::done);
  const double second = counters.stats().loading_s;
  EXPECT_GT(second, first);
  pause();
  counters.ended(counted_job(TierJob::Verb::load, 1, 8), TierOutcome::failed);
  const double last = counters.stats().loading_s;
  EXPECT_GT(last, second) << "one load was still open";
  const double whole = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_LE(last, whole) << "loads at the same time count once";
  pause();
  counters.load_started();
  EXPECT_EQ(counters.stats().loading_s, last) << "no load was open";
}

// Keeps submitted jobs until the test ends them.
class HeldStore final : public BlockStore {
 public:
  [[nodiscard]] std::uint32_t num_places() const override { return 1; }
  [[nodiscard]] std::uint64_t block_bytes() const override { return 100; }
  void submit(TierJob job) override { jobs.push_back(std::move(job)); }
  std::vector<TierJob> jobs;
};

TEST(SharedStoreCounters, ProbesTheLastMovedBlocks) {
  SharedStoreCounters counters;
  HeldStore store;
  EXPECT_FALSE(counters.is_probing());
  const std::vector<std::uint64_t> bytes = {10, 20, 30};
  counters.probe_loads(store, bytes, {tier_name(100), tier_name(101)});
  ASSERT_EQ(store.jobs.size(), 2U) << "nothing was moved yet";
  EXPECT_EQ(store.jobs[1].name, tier_name(101));
  EXPECT_TRUE(counters.is_probing());
  store.jobs[0].over(TierOutcome::absent);
  EXPECT_TRUE(counters.is_probing());
  store.jobs[1].over(TierOutcome::done);
  EXPECT_FALSE(counters.is_probing());
  const auto probed = [&] {
    store.jobs.clear();
    counters.probe_loads(store, bytes, {tier_name(100)});
    std::vector<OffloadKey> names;
    for (const TierJob& job : store.jobs) {
      EXPECT_EQ(job.verb, TierJob::Verb::load);
      EXPECT_EQ(job.bytes, bytes[job.name.group]);
      EXPECT_FALSE(job.copy({})) << "the bytes are dropped";
      names.push_back(job.name);
      job.over(TierOutcome::cancelled);
    }
    EXPECT_FALSE(counters.is_probing());
    return names;
  };
  counters.ended(counted_job(TierJob::Verb::store, 1, 8), TierOutcome::failed);
  EXPECT_EQ(probed(), std::vector{tier_name(100)});
  counters.ended(counted_job(TierJob::Verb::store, 1, 8), TierOutcome::done);
  EXPECT_EQ(probed(), std::vector(8, tier_name(1)));
  counters.load_started();
  counters.ended(counted_job(TierJob::Verb::load, 2, 8), TierOutcome::done);
  std::vector<OffloadKey> names(8, tier_name(1));
  names[1] = tier_name(2);
  EXPECT_EQ(probed(), names);
  for (std::uint64_t number = 3; number <= 9; ++number) {
    counters.ended(counted_job(TierJob::Verb::store, number, 8), TierOutcome::done);
    names[(number - 1) % 8] = tier_name(number);
  }
  EXPECT_EQ(probed(), names) << "the oldest is replaced";
  EXPECT_EQ(names[0], tier_name(9));
}

TEST(SharedStoreCounters, CountsProbesWithoutLoads) {
  SharedStoreCounters counters;
  counters.probe_started();
  counters.probe_started();
  counters.probe_finished(true);
  EXPECT_TRUE(counters.is_probing());
  EXPECT_EQ(counters.stats().num_answered_loads, 1U);
  EXPECT_EQ(counters.stats().num_failed_loads, 0U);
  counters.probe_finished(false);
  EXPECT_FALSE(counters.is_probing());
  EXPECT_EQ(counters.stats().num_answered_loads, 1U);
  EXPECT_EQ(counters.stats().num_failed_loads, 1U);
}

}  // namespace
}  // namespace quire::test
