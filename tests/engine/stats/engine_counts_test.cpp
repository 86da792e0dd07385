// Tests the engine's counters: each event goes to its own counter and counts once.
#include "engine/stats/engine_counts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "engine/stats/rate.h"

namespace quire {
namespace {

std::uint64_t total(const HistogramSnapshot& histogram) {
  return histogram.counts.back();
}

TEST(EngineCounts, CountsAPromptWithItsFirstTokens) {
  EngineCounts counts;
  counts.first_tokens(2, 30, 16, 0.5);
  counts.next_tokens(1, 0.25);
  const EngineStats& stats = counts.stats();
  EXPECT_EQ(stats.generation_tokens, 3U);
  EXPECT_EQ(stats.prompt_tokens, 30U);
  EXPECT_EQ(stats.prompt_tokens_cached, 16U);
  EXPECT_EQ(total(stats.time_to_first_token_s), 1U);
  EXPECT_EQ(stats.time_to_first_token_s.sum, 0.5);
  EXPECT_EQ(total(stats.inter_token_latency_s), 1U);
  EXPECT_EQ(stats.inter_token_latency_s.sum, 0.25);
}

TEST(EngineCounts, CountsEveryFinishReason) {
  EngineCounts counts;
  for (const FinishReason reason :
       {FinishReason::stop, FinishReason::repetition, FinishReason::length, FinishReason::abort, FinishReason::error})
    counts.ended(reason, 1.0);
  const EngineStats& stats = counts.stats();
  EXPECT_EQ(stats.finished_stop, 1U);
  EXPECT_EQ(stats.finished_repetition, 1U);
  EXPECT_EQ(stats.finished_length, 1U);
  EXPECT_EQ(stats.finished_abort, 1U);
  EXPECT_EQ(stats.finished_error, 1U);
  EXPECT_EQ(total(stats.e2e_latency_s), 5U);
}

TEST(EngineCounts, CountsDraftsByPosition) {
  EngineCounts counts;
  EXPECT_FALSE(counts.stats().speculation.has_value()) << "no statistics without drafts";
  counts.drafts(4, 0);
  counts.drafts(4, 3);
  counts.drafts(2, 1);
  const SpeculationStats& stats = counts.stats().speculation.value();
  EXPECT_EQ(stats.num_drafts, 3U);
  EXPECT_EQ(stats.num_draft_tokens, 10U);
  EXPECT_EQ(stats.num_accepted_tokens, 4U);
  EXPECT_EQ(stats.num_accepted_per_position, (std::vector<std::uint64_t>{2, 1, 1}));
}

TEST(EngineCounts, CountsOneLifetimePerEvictedBlockAndEachReuseGap) {
  EngineCounts counts;
  EXPECT_FALSE(counts.stats().kv_residency.has_value()) << "residency metrics are off";
  counts.evictions({});
  ASSERT_TRUE(counts.stats().kv_residency.has_value()) << "residency metrics are on";
  const KvEvictionEvent events[] = {{.lifetime = 8.0, .idle = 0.5, .reuse_gaps = {1.0, 2.0}},
                                    {.lifetime = 2000.0, .idle = 4.0, .reuse_gaps = {}}};
  counts.evictions(events);
  const KvResidencyStats& stats = *counts.stats().kv_residency;
  EXPECT_EQ(total(stats.lifetime_s), 2U);
  EXPECT_EQ(stats.lifetime_s.sum, 2008.0);
  EXPECT_EQ(stats.lifetime_s.counts[stats.lifetime_s.counts.size() - 2], 1U) << "vLLM's last bound is 1800";
  EXPECT_EQ(total(stats.idle_before_evict_s), 2U);
  EXPECT_EQ(stats.idle_before_evict_s.sum, 4.5);
  EXPECT_EQ(total(stats.reuse_gap_s), 2U);
  EXPECT_EQ(stats.reuse_gap_s.sum, 3.0);
}

TEST(EngineCounts, SumsCommonBlocksOverGroupsWhenTwoRequestsRun) {
  EngineCounts counts;
  const std::uint32_t blocks[] = {3, 2};
  counts.common_prefix(1, blocks);
  EXPECT_FALSE(counts.stats().common_prefix_blocks.has_value());
  counts.common_prefix(2, blocks);
  const std::uint32_t none[] = {0, 0};
  counts.common_prefix(9, none);
  ASSERT_TRUE(counts.stats().common_prefix_blocks.has_value());
  EXPECT_EQ(total(*counts.stats().common_prefix_blocks), 2U);
  EXPECT_EQ(counts.stats().common_prefix_blocks->sum, 5.0);
  EXPECT_EQ(counts.stats().common_prefix_blocks->counts[0], 1U) << "zero common blocks have a separate bucket";
}

TEST(EngineCounts, SplitsAStepIntoPlanRunAndApply) {
  EngineCounts counts;
  counts.step({.plan_s = 0.5, .run_s = 2.0, .apply_s = 0.25});
  EXPECT_EQ(counts.stats().step_time_s.sum, 2.75);
  EXPECT_EQ(counts.stats().scheduler_time_s.sum, 0.75);
  EXPECT_EQ(total(counts.stats().forward_time_s), 0U) << "the step computed nothing";
  counts.forward_pass(1.5, 0.125);
  EXPECT_EQ(counts.stats().forward_time_s.sum, 1.5);
  EXPECT_EQ(counts.stats().sample_time_s.sum, 0.125);
}

TEST(EngineCounts, SumsPredictedAndMeasuredStepsAndQueueTimes) {
  EngineCounts counts;
  counts.predicted_step(1.0, 2.0);
  counts.predicted_step(0.5, 0.25);
  counts.admitted(3.0);
  counts.admitted(4.0);
  EXPECT_EQ(counts.stats().predicted_steps_s, 1.5);
  EXPECT_EQ(counts.stats().measured_steps_s, 2.25);
  EXPECT_EQ(counts.stats().queue_time_s.sum, 7.0);
  EXPECT_EQ(total(counts.stats().queue_time_s), 2U);
}

TEST(EngineCounts, CopiesEveryCounterOfTheCore) {
  CoreCounters core;
  core.num_steps = 1;
  core.num_running = 2;
  core.num_waiting = 3;
  core.num_blocks = 4;
  core.num_free_blocks = 5;
  core.num_cached_blocks = 6;
  core.num_pinned = 7;
  core.num_awaiting_transfers = 8;
  core.num_open_transfers = 9;
  core.num_preemptions = 10;
  core.is_admission_stopped = true;
  core.num_admission_stops = 11;
  core.num_pressure_preemptions = 12;
  core.num_evicted_blocks = 13;
  core.num_forks = 14;
  core.num_copied_blocks = 15;
  core.prefix_query_tokens = 16;
  core.prefix_hit_tokens = 17;
  core.external_query_tokens = 18;
  core.external_hit_tokens = 19;
  EngineCounts counts;
  counts.take(core);
  const EngineStats& stats = counts.stats();
  EXPECT_EQ(stats.num_steps, 1U);
  EXPECT_EQ(stats.num_running, 2U);
  EXPECT_EQ(stats.num_waiting, 3U);
  EXPECT_EQ(stats.num_blocks, 4U);
  EXPECT_EQ(stats.num_free_blocks, 5U);
  EXPECT_EQ(stats.num_cached_blocks, 6U);
  EXPECT_EQ(stats.num_pinned, 7U);
  EXPECT_EQ(stats.num_awaiting_transfers, 8U);
  EXPECT_EQ(stats.num_open_transfers, 9U);
  EXPECT_EQ(stats.num_preemptions, 10U);
  EXPECT_TRUE(stats.is_admission_stopped);
  EXPECT_EQ(stats.num_admission_stops, 11U);
  EXPECT_EQ(stats.num_pressure_preemptions, 12U);
  EXPECT_EQ(stats.num_evicted_blocks, 13U);
  EXPECT_EQ(stats.num_forks, 14U);
  EXPECT_EQ(stats.num_copied_blocks, 15U);
  EXPECT_EQ(stats.prefix_cache_queries, 16U);
  EXPECT_EQ(stats.prefix_cache_hits, 17U);
  EXPECT_EQ(stats.external_prefix_cache_queries, 18U);
  EXPECT_EQ(stats.external_prefix_cache_hits, 19U);
}

TEST(EngineCounts, NamesTheAdaptersOfRunningAndWaitingRequests) {
  using Names = std::vector<std::string>;
  EngineCounts counts;
  const EngineStats& stats = counts.stats();
  const auto expect = [&stats](const Names& waiting, const Names& running, int line) {
    EXPECT_EQ(stats.waiting_adapters, waiting) << "line " << line;
    EXPECT_EQ(stats.running_adapters, running) << "line " << line;
  };
  counts.adapter_waits("b");
  expect({"b"}, {}, __LINE__);
  counts.adapter_waits("a");
  counts.adapter_waits("a");
  expect({"a", "b"}, {}, __LINE__);
  counts.adapter_runs("a");
  expect({"a", "b"}, {"a"}, __LINE__);
  counts.adapter_runs("a");
  expect({"b"}, {"a"}, __LINE__);
  counts.adapter_ends("a", true);
  expect({"b"}, {"a"}, __LINE__);
  counts.adapter_ends("b", false);
  expect({}, {"a"}, __LINE__);
  counts.adapter_ends("a", true);
  expect({}, {}, __LINE__);
}

TEST(Histograms, CountAValueInEveryBucketThatReachesIt) {
  HistogramSnapshot histogram = make_histogram({1.0, 2.0, 4.0});
  EXPECT_EQ(histogram.counts, (std::vector<std::uint64_t>{0, 0, 0, 0}));
  struct Case {
    double value;
    std::uint64_t times;
    std::vector<std::uint64_t> counts;
    double sum;
  };
  for (const Case& one : {Case{2.0, 1, {0, 1, 1, 1}, 2.0}, Case{0.5, 1, {1, 2, 2, 2}, 2.5}, Case{4.5, 1, {1, 2, 2, 3}, 7.0},
                          Case{1.0, 3, {4, 5, 5, 6}, 10.0}, Case{2.5, 2, {4, 5, 7, 8}, 15.0}}) {
    one.times == 1 ? observe(histogram, one.value) : observe(histogram, one.value, one.times);
    EXPECT_EQ(histogram.counts, one.counts) << one.value;
    EXPECT_EQ(histogram.sum, one.sum) << one.value;
  }
}

// Dashboards for vLLM read these buckets.
TEST(Histograms, HaveVllmsBuckets) {
  using Bounds = std::vector<double>;
  const EngineStats stats = make_engine_stats();
  const Bounds first = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25,  0.5,   0.75,
                        1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0};
  const Bounds next = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1,  0.15, 0.2,  0.3,
                       0.4,   0.5,    0.75,  1.0,  2.5,   5.0,  7.5,   10.0, 20.0, 40.0, 80.0};
  const Bounds whole = {0.3,  0.5,  0.8,  1.0,  1.5,   2.0,   2.5,   5.0,   10.0,   15.0,  20.0,
                        30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};
  const Bounds step = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0};
  const Bounds plan = {1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 5e-2, 0.1, 0.5, 1.0};
  const Bounds residency = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05,  0.1,   0.2,   0.5,    1.0,   2.0,
                            5.0,   10.0,  20.0,  30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0};
  const Bounds blocks = {0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096};
  const KvResidencyStats kv = make_residency_stats();
  for (const auto& [histogram, bounds] : {std::pair(stats.time_to_first_token_s, first),
                                          {stats.inter_token_latency_s, next},
                                          {stats.e2e_latency_s, whole},
                                          {stats.queue_time_s, whole},
                                          {stats.step_time_s, step},
                                          {stats.forward_time_s, step},
                                          {stats.sample_time_s, step},
                                          {stats.scheduler_time_s, plan},
                                          {kv.lifetime_s, residency},
                                          {kv.idle_before_evict_s, residency},
                                          {kv.reuse_gap_s, residency},
                                          {make_block_histogram(), blocks}}) {
    EXPECT_EQ(histogram.bounds, bounds);
    EXPECT_EQ(histogram.counts, std::vector<std::uint64_t>(bounds.size() + 1, 0));
    EXPECT_EQ(histogram.sum, 0.0);
  }
}

TEST(Rate, ForgetsOldAmounts) {
  Rate rate(2.0);
  EXPECT_EQ(rate.per_second(), 0.0);
  rate.add(5.0, 0.0);
  rate.add(5.0, -1.0);
  EXPECT_EQ(rate.per_second(), 0.0) << "nothing was measured";
  rate.add(30.0, 3.0);
  EXPECT_DOUBLE_EQ(rate.per_second(), 10.0);
  rate.add(40.0, 2.0);
  const double kept = std::exp(-1.0);
  EXPECT_DOUBLE_EQ(rate.per_second(), (30.0 * kept + 40.0) / (3.0 * kept + 2.0));
}

}  // namespace
}  // namespace quire
