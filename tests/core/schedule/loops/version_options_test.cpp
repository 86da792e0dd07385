// Tests each option in Vllm032Options in its smallest case, with and without the option.
#include "core/schedule/core_driver.h"

namespace quire::test {
namespace {

CoreConfig with(const Vllm032Options& options, CoreConfig config = sync_config()) {
  config.decisions = DecisionProfile::vllm_0_32;
  config.newer = options;
  return config;
}

TEST(Vllm032Options, LimitTheNumberOfRunningRequests) {
  for (const std::uint32_t most : {0U, 1U}) {
    CoreDriver d(with({.max_num_active_seqs = most}));
    d.add(1, 8, 4);
    d.add(2, 8, 4);
    d.step();
    EXPECT_EQ(d.scheduled(2), most == 0 ? 8U : 0U);
  }
}

TEST(Vllm032Options, KeepBlocksFreeOnAdmissionWhileRequestsRun) {
  for (const std::uint32_t num_left : {3U, 4U}) {
    CoreDriver d(with({.num_watermark_blocks = num_left}, sync_config(9)));
    d.add(1, 12, 4);  // takes three of eight blocks
    d.add(2, 8, 4);
    d.step();
    EXPECT_EQ(d.scheduled(1), 12U);
    EXPECT_EQ(d.scheduled(2), num_left == 3 ? 8U : 0U) << "the admission would leave three blocks";
  }
  CoreDriver alone(with({.num_watermark_blocks = 8}, sync_config(9)));
  alone.add(1, 12, 4);
  alone.step();
  EXPECT_EQ(alone.scheduled(1), 12U);
}

TEST(Vllm032Options, IgnoreThePrefillThresholdBelowAnEvenShare) {
  for (const std::uint32_t threshold : {1U, 4U}) {
    for (const std::uint32_t shared : {0U, 1U, 30U}) {
      CoreConfig config = with({.shared_prefill_tokens = shared});
      config.scheduler.long_prefill_token_threshold = threshold;
      CoreDriver d(config);
      for (std::uint64_t id = 1; id <= 3; ++id) d.add(id, 20, 4);
      d.step();
      for (std::uint64_t id = 1; id <= 3; ++id) EXPECT_EQ(d.scheduled(id), shared == 30 ? 10U : threshold);
    }
  }
}

TEST(Vllm032Options, PlanAnEmptyStepWithAnyThreshold) {
  for (const DecisionProfile profile : {DecisionProfile::vllm_0_19, DecisionProfile::vllm_0_32}) {
    for (const std::uint32_t shared : {0U, 30U}) {
      if (profile == DecisionProfile::vllm_0_19 && shared != 0) continue;
      CoreConfig config = with({.shared_prefill_tokens = shared});
      config.decisions = profile;
      config.scheduler.long_prefill_token_threshold = 4;
      CoreDriver d(config);
      EXPECT_TRUE(d.plan().scheduled.empty());
      d.apply();
    }
  }
}

TEST(Vllm032Options, DelayFreedBlocksUntilStepsInFlightHaveFinished) {
  for (const bool defers : {false, true}) {
    CoreDriver d(with({.defer_block_free = defers}, async_config(12)));
    d.add(1, 8, 8);
    d.plan();
    d.plan();
    d.core->finish(RequestId{1}, RequestStatus::finished_aborted, {.now = 9.0});
    EXPECT_EQ(d.snapshot().free_blocks.size(), defers ? 8U : 11U);
    d.apply();
    EXPECT_EQ(d.snapshot().free_blocks.size(), defers ? 8U : 11U) << "the second step is in flight";
    d.apply();
    EXPECT_EQ(d.snapshot().free_blocks.size(), 11U);
  }
}

TEST(Vllm032Options, DoNotPreemptARequestWhoseBlocksWouldBeFreedLate) {
  for (const bool defers : {false, true}) {
    CoreDriver d(with({.defer_block_free = defers}, async_config(6)));
    d.add(1, 8, 6);
    d.add(2, 8, 6);
    d.plan();  // each request takes two blocks
    d.plan();  // request 1 takes the last block
    EXPECT_EQ(d.view(2).status, defers ? RequestStatus::running : RequestStatus::preempted);
    d.apply();
    d.apply();
  }
}

TEST(Vllm032Options, DropTokensInFlightOfPreemptedRequests) {
  for (const bool drops : {false, true}) {
    CoreDriver d(with({.drop_undelivered = drops}, async_config(6)));
    d.add(1, 8, 6);
    d.add(2, 8, 6);
    d.plan();
    d.plan();
    ASSERT_EQ(d.view(2).status, RequestStatus::preempted);
    EXPECT_EQ(d.apply().updates.size(), drops ? 1U : 2U);
    EXPECT_EQ(d.outputs(2).size(), drops ? 0U : 1U);
    d.apply();
  }
}

}  // namespace
}  // namespace quire::test
