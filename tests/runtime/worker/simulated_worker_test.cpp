#include "runtime/worker/simulated_worker.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace quire {
namespace {

constexpr std::uint32_t kVocab = 1000;

// Runs one request with `prompt` in slot 0 step by step.
class Drive {
 public:
  explicit Drive(std::vector<TokenId> prompt, TokenId poison = -1, std::uint32_t num_threads = 1, std::shared_ptr<ManualClock> clock = {},
                 const StepTimeModel& step_time = {})
      : tokens_(std::move(prompt)),
        worker_({.limits = {4, 64, 64},
                 .block_size = 4,
                 .num_blocks = 16,
                 .vocab_size = kVocab,
                 .poison = poison,
                 .num_threads = num_threads,
                 .clock = std::move(clock),
                 .step_time = step_time}) {
    admitted_ = {{RequestId{7}, Slot{0}, tokens_, static_cast<std::uint32_t>(tokens_.size()), &params_}};
  }

  WorkerResult run(std::uint32_t computed, std::uint32_t count, std::vector<BlockId> blocks, bool samples = true, Slot slot = Slot{0}) {
    start(computed, count, std::move(blocks), samples, slot);
    return finish();
  }
  void start(std::uint32_t computed, std::uint32_t count, std::vector<BlockId> blocks, bool samples = true, Slot slot = Slot{0}) {
    blocks_ = std::move(blocks);
    deltas_.clear();
    if (!blocks_.empty()) {
      BlockTableDelta& delta = deltas_.emplace_back();
      delta.slot = slot;
      delta.blocks = blocks_;
    }
    scheduled_.resize(1);
    scheduled_[0].id = RequestId{7};
    scheduled_[0].slot = slot;
    scheduled_[0].num_computed_tokens = computed;
    scheduled_[0].num_tokens = count;
    scheduled_[0].samples = samples;
    plan_.step = step_;
    plan_.released = released_;
    plan_.admitted = admitted_;
    plan_.table_deltas = deltas_;
    plan_.scheduled = scheduled_;
    plan_.num_scheduled_tokens = count;
    plan_.has_structured_output = is_structured;
    ++step_.value;
    worker_.start(plan_);
  }
  WorkerResult finish() {
    worker_.assist();
    const WorkerResult result = worker_.finish();
    admitted_.clear();
    released_.clear();
    return result;
  }
  void move_to(Slot slot) {
    released_ = {Slot{0}};
    admitted_ = {{RequestId{7}, slot, tokens_, 1, &params_}};
  }
  std::vector<TokenId>& tokens() { return tokens_; }
  SimulatedWorker& worker() { return worker_; }

  bool is_structured = false;

 private:
  std::vector<TokenId> tokens_;
  SamplingParams params_;
  SimulatedWorker worker_;
  std::vector<BlockId> blocks_;
  std::vector<Slot> released_;
  std::vector<AdmittedRequest> admitted_;
  std::vector<BlockTableDelta> deltas_;
  std::vector<ScheduledRequest> scheduled_;
  StepPlan plan_;
  StepId step_{0};
};

TEST(SimulatedWorker, FeedsItsOwnSamplesBack) {
  Drive drive({1, 2, 3});
  std::vector<TokenId> history = drive.tokens();
  TokenId token = drive.run(0, 3, {BlockId{1}}).requests[0].samples[0].token;
  for (std::uint32_t i = 3; i < 8; ++i) {
    EXPECT_EQ(token, simulated_token(history, kVocab));
    history.push_back(token);
    token = drive.run(i, 1, i == 4 ? std::vector{BlockId{2}} : std::vector<BlockId>{}).requests[0].samples[0].token;
  }
}

TEST(SimulatedWorker, AResultOutlivesTheNextStep) {
  for (const std::uint32_t num_threads : {1U, 2U}) {
    Drive drive({1, 2, 3}, -1, num_threads);
    std::vector<TokenId> history = drive.tokens();
    WorkerResult before = drive.run(0, 3, {BlockId{1}});
    for (std::uint32_t i = 3; i < 60; ++i) {
      drive.start(i, 1, i % 4 == 0 ? std::vector{BlockId{i / 4 + 1}} : std::vector<BlockId>{});
      ASSERT_EQ(before.requests[0].samples[0].token, simulated_token(history, kVocab)) << "the result is valid while the next step runs";
      ASSERT_EQ(before.step.step.value, i - 3);
      history.push_back(before.requests[0].samples[0].token);
      before = drive.finish();
    }
  }
}

TEST(SimulatedWorker, ChunksGiveNoSampleBeforeTheLast) {
  Drive drive({1, 2, 3, 4, 5});
  EXPECT_TRUE(drive.run(0, 2, {BlockId{3}}, false).requests.empty());
  const std::vector<TokenId> history = drive.tokens();
  EXPECT_EQ(drive.run(2, 3, {BlockId{5}}).requests[0].samples[0].token, simulated_token(history, kVocab));
}

TEST(SimulatedWorker, AResumedRequestMayReuseTheContentsOfItsBlocks) {
  Drive drive({1, 2, 3, 4, 5});
  drive.tokens().push_back(drive.run(0, 5, {BlockId{1}, BlockId{2}}).requests[0].samples[0].token);
  drive.move_to(Slot{2});
  const std::vector<TokenId> history = drive.tokens();
  const WorkerResult result = drive.run(4, 2, {BlockId{1}, BlockId{9}}, true, Slot{2});
  EXPECT_EQ(result.requests[0].samples[0].token, simulated_token(history, kVocab));
}

TEST(SimulatedWorker, PoisonGivesAFailedRow) {
  Drive drive({1, 2, 3}, 3);
  EXPECT_EQ(drive.run(0, 3, {BlockId{1}}).requests[0].samples[0].status, SampleOutcome::Status::not_finite);
}

TEST(SimulatedWorker, AStepTakesTheTimeOfTheModel) {
  const StepTimeModel model{.step_s = 8.0, .request_s = 0.5, .prompt_token_s = 0.25, .sampled_token_s = 2.0, .context_token_s = 0.125};
  for (const std::uint32_t num_threads : {1U, 2U}) {
    const auto clock = std::make_shared<ManualClock>(100.0);
    Drive drive({1, 2, 3, 4, 5}, -1, num_threads, clock, model);
    const StepTimings chunk = drive.run(0, 2, {BlockId{3}}, false).timings;
    EXPECT_EQ(chunk.forward_s, 8.0 + 0.5 + 2 * 0.25);
    EXPECT_EQ(chunk.step_s, chunk.forward_s);
    const StepTimings last = drive.run(2, 3, {BlockId{5}}).timings;
    EXPECT_EQ(last.forward_s, 8.0 + 0.5 + 2 * 0.25 + 2.0 + 2 * 0.125);
    EXPECT_EQ(last.sample_s, 0.0);
    EXPECT_EQ(clock->now, 100.0 + chunk.step_s + last.step_s);
  }
  EXPECT_EQ(model(StepPlan{}), 0.0);
}

TEST(SimulatedWorker, WithoutAClockAStepReportsItsRealTime) {
  Drive drive({1, 2, 3});
  const StepTimings timings = drive.run(0, 3, {BlockId{1}}).timings;
  EXPECT_GT(timings.forward_s, 0.0);
  EXPECT_GT(timings.sample_s, 0.0);
  EXPECT_GE(timings.step_s, timings.forward_s + timings.sample_s);
  EXPECT_LT(timings.step_s, 100.0);
}

TEST(SimulatedWorker, SamplesAllowedTokens) {
  const TokenId free = simulated_token(std::vector<TokenId>{1, 2, 3}, kVocab);
  std::vector<std::uint32_t> words((kVocab + 31) / 32, 0xFFFFFFFFU);
  const auto sample = [&](std::uint32_t num_threads, bool late) {
    Drive drive({1, 2, 3}, -1, num_threads);
    drive.is_structured = true;
    const TokenMask mask{RequestId{7}, words};
    drive.start(0, 3, {BlockId{1}});
    if (late) drive.worker().assist();
    drive.worker().provide({&mask, 1});
    return drive.finish().requests[0].samples[0];
  };
  for (const std::uint32_t num_threads : {1U, 2U}) {
    for (const bool late : {false, true}) {
      std::ranges::fill(words, 0xFFFFFFFFU);
      EXPECT_EQ(sample(num_threads, late).token, free);
      words[static_cast<std::size_t>(free) / 32] &= ~(1U << static_cast<std::uint32_t>(free) % 32);
      EXPECT_EQ(sample(num_threads, late).token, (free + 1) % static_cast<TokenId>(kVocab));
      std::ranges::fill(words, 0U);
      EXPECT_EQ(sample(num_threads, late).status, SampleOutcome::Status::all_masked);
    }
  }
}

TEST(SimulatedWorkerDeath, AStepWithoutItsMasksAbortsTheProgram) {
  Drive drive({1, 2, 3});
  drive.is_structured = true;
  EXPECT_DEATH(drive.run(0, 3, {BlockId{1}}), "masks were provided for a plan with structured output");
}

TEST(SimulatedWorkerDeath, ReadingUnwrittenBlocksAbortsTheProgram) {
  Drive drive({1, 2, 3, 4, 5});
  EXPECT_DEATH(drive.run(4, 1, {BlockId{1}, BlockId{2}}), "a block contains the tokens that the plan expects");
}

TEST(SimulatedWorkerDeath, ReadingAnotherHistoryAbortsTheProgram) {
  Drive drive({1, 2, 3, 4, 5});
  drive.run(0, 5, {BlockId{1}, BlockId{2}});
  drive.tokens() = {9, 2, 3, 4, 5};
  drive.move_to(Slot{1});
  EXPECT_DEATH(drive.run(4, 1, {BlockId{1}, BlockId{3}}, true, Slot{1}), "a block contains the tokens that the plan expects");
}

TEST(SimulatedWorkerDeath, PlansThatContradictTheHistoriesAbortTheProgram) {
  Drive drive({1, 2, 3});
  EXPECT_DEATH(drive.run(0, 4, {BlockId{1}}), "the worker has all tokens that are scheduled");
  EXPECT_DEATH(drive.run(0, 2, {BlockId{1}}, true), "if its last known token is scheduled");
  EXPECT_DEATH(drive.run(0, 3, {BlockId{0}}), "the null block is never written");
}

}  // namespace
}  // namespace quire
