// Tests the engine's counters: each event goes to its own counter and counts once.
#include "engine/stats/engine_counts.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace quire
