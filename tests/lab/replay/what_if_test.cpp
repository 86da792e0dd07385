// Tests the predicted effect of another configuration: none for the same configuration, and the expected one otherwise. For cores that are
// stepped by hand, every time and count follows by hand.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "engine/simulated_engine.h"
#include "lab/replay/stepped_run.h"
#include "quire/journal.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {
namespace {

// Runs thirty requests at the same time on a cache that fits all of them.
class WhatIfTest : public testing::Test {
 protected:
  void SetUp() override {
    EngineOptions options;
    options.cache.num_blocks = 400;
    options.scheduler.max_num_seqs = 16;
    options.journal.folder = folder_.path();
    auto engine = start(kModes[0], {.options = options});
    Collector sink;
    Random random(3);
    std::vector<RequestId> ids;
    for (int i = 0; i < 30; ++i) {
      EngineRequest request = random_request(random);
      request.priority = 0;
      ids.push_back(engine->submit(request, sink).value());
    }
    for (const RequestId id : ids) (void)sink.wait(id);
    engine->stop(10.0);
    engine.reset();
    path_ = std::filesystem::directory_iterator(folder_.path())->path();
  }
  TempFolder folder_;
  std::string path_;
};

TEST_F(WhatIfTest, SameConfigurationChangesNothing) {
  const WhatIf answer = what_if(path_, [](CoreConfig&) {}).value();
  EXPECT_EQ(answer.num_requests, 30U);
  EXPECT_FALSE(answer.first_difference.has_value());
  EXPECT_EQ(answer.before.num_steps, answer.after.num_steps);
  EXPECT_EQ(answer.before.mean_ttft_s, answer.after.mean_ttft_s);
  EXPECT_EQ(answer.before.num_preemptions, 0U);
  EXPECT_GT(answer.before.num_hit_tokens, 0U);
  EXPECT_GT(answer.before.end_s, 0.0);
  EXPECT_GE(answer.before.p90_ttft_s, answer.before.p50_ttft_s);
  EXPECT_GE(answer.before.mean_ttft_steps, 1.0);
}

TEST_F(WhatIfTest, FewerBlocksCausePreemptions) {
  const WhatIf answer = what_if(path_, [](CoreConfig& config) { config.kv.num_blocks = 24; }).value();
  EXPECT_TRUE(answer.first_difference.has_value());
  EXPECT_GT(answer.after.num_steps, answer.before.num_steps);
  EXPECT_GT(answer.after.mean_ttft_steps, answer.before.mean_ttft_steps);
  EXPECT_GT(answer.after.end_s, answer.before.end_s);
}

TEST_F(WhatIfTest, SmallerBatchIncreasesTtft) {
  const WhatIf answer = what_if(path_, [](CoreConfig& config) { config.scheduler.max_num_seqs = 2; }).value();
  EXPECT_GT(answer.after.num_steps, 3 * answer.before.num_steps / 2);
  EXPECT_GT(answer.after.p90_ttft_s, answer.before.p90_ttft_s);
}

TEST_F(WhatIfTest, DisabledPrefixCacheHasNoHits) {
  const WhatIf answer = what_if(path_, [](CoreConfig& config) { config.prefix_cache.enable_prefix_caching = false; }).value();
  EXPECT_EQ(answer.after.num_hit_tokens, 0U);
}

TEST_F(WhatIfTest, InvalidConfigurationIsAnError) {
  EXPECT_FALSE(what_if(path_, [](CoreConfig& config) { config.scheduler.max_num_seqs = 0; }).has_value());
  EXPECT_EQ(what_if(path_, [](CoreConfig& config) { config.swap.swap_choice = SwapChoice::always; }).error().code, ErrorCode::unsupported);
}

// The first step of this engine computes 256 prompt tokens at most.
TEST(WhatIf, KeepsTheRecordedLimitsOfPromptTokens) {
  const TempFolder folder;
  EngineOptions options;
  options.journal.folder = folder.path();
  options.step_time_target_ms = 100;
  ModelInfo model = simulated_model();
  model.context_length = 2000;
  auto engine = start(kModes[0], {.options = options, .model = model});
  Collector sink;
  (void)sink.wait(engine->submit(make_request(900, 2), sink).value());
  engine->stop(10.0);
  engine.reset();
  const WhatIf answer = what_if(std::filesystem::directory_iterator(folder.path())->path(), [](CoreConfig&) {}).value();
  EXPECT_GE(answer.before.num_steps, 3U) << "two steps for the prompt, and one for the second token";
}

TEST(WhatIf, RefusesJournalsWithForks) {
  const TempFolder folder;
  EngineOptions options;
  options.journal.folder = folder.path();
  auto engine = start(kModes[0], {.options = options});
  Collector sink;
  EngineRequest request = make_request(5, 10);
  request.n = 2;
  const RequestId id = engine->submit(request, sink).value();
  for (std::uint64_t i = 0; i < 2; ++i) (void)sink.wait({id.value + i});
  engine->stop(10.0);
  engine.reset();
  const auto answer = what_if(std::filesystem::directory_iterator(folder.path())->path(), [](CoreConfig&) {});
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code, ErrorCode::unsupported);
  EXPECT_NE(answer.error().message.find("forks"), std::string::npos) << answer.error().message;
}

std::string text_of_run(const WhatIfRun& run) {
  return fmt::format("{} steps, {} preempted, {} refused, {} of {} tokens hit, TTFT {:g} steps {:g} {:g} {:g} s, end {:g} s", run.num_steps,
                     run.num_preemptions, run.num_refused, run.num_hit_tokens, run.num_prompt_tokens, run.mean_ttft_steps, run.mean_ttft_s,
                     run.p50_ttft_s, run.p90_ttft_s, run.end_s);
}

// The steps take 1, 2 and 3 s. Alone, the first request needs all three, and further steps take the mean of 2 s.
TEST(WhatIfByHand, TimesFollowFromTheRecordedSteps) {
  SteppedRun run;
  run.add(1, 8, 3, 100.0);
  run.step(100.0, 101.0);
  run.add(2, 8, 2, 101.0);
  run.add(3, 8, 1, 101.0);
  run.step(101.0, 103.0);
  run.step(103.0, 106.0);
  const std::string path = run.path();
  const WhatIf one = what_if(path, [](CoreConfig& config) { config.scheduler.max_num_seqs = 1; }).value();
  EXPECT_EQ(one.num_requests, 3U);
  EXPECT_EQ(text_of_run(one.before), "3 steps, 0 preempted, 0 refused, 0 of 24 tokens hit, TTFT 1 steps 1.66667 2 2 s, end 6 s");
  EXPECT_EQ(text_of_run(one.after), "6 steps, 0 preempted, 0 refused, 0 of 24 tokens hit, TTFT 3 steps 6.33333 7 7 s, end 12 s");
  EXPECT_EQ(one.first_difference, StepId{1});
  const WhatIf shorter = what_if(path, [](CoreConfig& config) { config.scheduler.max_model_len = 7; }).value();
  EXPECT_EQ(text_of_run(shorter.after), "0 steps, 0 preempted, 3 refused, 0 of 0 tokens hit, TTFT 0 steps 0 0 0 s, end 0 s");
  EXPECT_EQ(shorter.first_difference, StepId{0});
  EXPECT_FALSE(what_if(path, [](CoreConfig& config) { config.kv.num_blocks = 31; }).value().first_difference.has_value());
}

// A shared prompt is found, and a pause between two requests takes no step.
TEST(WhatIfByHand, HitsAndPausesAreKept) {
  SteppedRun run;
  run.add(1, CoreDriver::prompt(1, 9), 2, 100.0, 100.0);
  run.step(100.0, 101.0);
  run.step(101.0, 102.0);
  run.add(2, CoreDriver::prompt(1, 9), 2, 150.0, 150.0);
  run.step(150.0, 154.0);
  run.step(154.0, 155.0);
  const WhatIf answer = what_if(run.path(), [](CoreConfig& config) { config.prefix_cache.enable_prefix_caching = false; }).value();
  EXPECT_EQ(text_of_run(answer.before), "4 steps, 0 preempted, 0 refused, 8 of 18 tokens hit, TTFT 1 steps 2.5 1 1 s, end 55 s");
  EXPECT_EQ(text_of_run(answer.after), "4 steps, 0 preempted, 0 refused, 0 of 0 tokens hit, TTFT 1 steps 2.5 1 1 s, end 55 s");
  EXPECT_TRUE(answer.first_difference.has_value());
}

// A request ends where its client ended it: after as many tokens, or before its first token at that time.
TEST(WhatIfByHand, AbortedRequestsEndAsRecorded) {
  CoreConfig config = sync_config();
  config.scheduler.max_num_seqs = 1;
  SteppedRun run(config);
  run.add(1, 8, 50, 100.0);
  run.add(2, 8, 50, 100.0);
  run.step(100.0, 101.0);
  run.step(101.0, 103.0);
  run.core().finish(RequestId{2}, RequestStatus::finished_aborted, {.now = 103.0});
  run.step(103.0, 104.0);
  run.core().finish(RequestId{1}, RequestStatus::finished_aborted, {.now = 104.5});
  run.add(3, 8, 1, 110.0);
  run.step(110.0, 111.0);
  const std::string path = run.path();
  const WhatIf answer = what_if(path, [](CoreConfig& changed) { changed.scheduler.max_num_seqs = 2; }).value();
  EXPECT_EQ(text_of_run(answer.before), "4 steps, 0 preempted, 0 refused, 0 of 16 tokens hit, TTFT 1 steps 1 1 1 s, end 11 s");
  // The second request now runs, too, and ends with its first token.
  EXPECT_EQ(text_of_run(answer.after), "4 steps, 0 preempted, 0 refused, 0 of 24 tokens hit, TTFT 1 steps 1 1 1 s, end 11 s");
  EXPECT_EQ(answer.first_difference, StepId{0});
}

// The first request never fits the cache. Its client ends it before the second one arrives.
TEST(WhatIfByHand, TimePassesWhileNoRequestCanRun) {
  CoreConfig config = sync_config(2);
  config.scheduler.admit_oversized = true;
  SteppedRun run(config);
  run.add(1, 8, 3, 100.0);
  run.step(100.0, 100.0);
  run.core().finish(RequestId{1}, RequestStatus::finished_aborted, {.now = 105.0});
  run.add(2, 3, 1, 110.0);
  run.step(110.0, 111.0);
  const WhatIf answer = what_if(run.path(), [](CoreConfig& changed) { changed.kv.num_blocks = 32; }).value();
  // Four plans look up its 8 tokens and are empty.
  EXPECT_EQ(text_of_run(answer.before), "5 steps, 0 preempted, 0 refused, 0 of 35 tokens hit, TTFT 1 steps 1 1 1 s, end 11 s");
  EXPECT_EQ(answer.after.num_steps, 2U);
}

TEST(WhatIfByHand, RefusesConfigurationsThatLeaveRequestsWaiting) {
  CoreConfig config = sync_config();
  config.scheduler.admit_oversized = true;
  SteppedRun run(config);
  run.add(1, 8, 1, 100.0);
  run.step(100.0, 101.0);
  run.add(2, 3, 1, 110.0);
  run.step(110.0, 111.0);
  EXPECT_EQ(what_if(run.path(), [](CoreConfig& changed) { changed.kv.num_blocks = 2; }).error().to_string(),
            "configuration: leaves requests waiting forever; use more blocks or more tokens per step");
}

TEST(WhatIfByHand, RefusesConfigurationsThatAskOtherQuestions) {
  SteppedRun run;
  play_three(run, true);
  const std::string path = run.path();
  const auto error_of = [&](const std::function<void(CoreConfig&)>& change) {
    const auto answer = what_if(path, change);
    return answer ? std::string() : answer.error().message;
  };
  EXPECT_EQ(error_of([](CoreConfig&) {}), "");
  EXPECT_EQ(error_of([](CoreConfig& config) { config.speculation.num_spec_tokens = 1; }),
            "has draft tokens, so the results of another configuration are unknown");
  EXPECT_EQ(error_of([](CoreConfig& config) { config.swap.swap_choice = SwapChoice::measured; }),
            "has swapped requests, so the results of another configuration are unknown");
  EXPECT_EQ(error_of([](CoreConfig& config) { config.scheduler.policy = SchedulingPolicy::continuum; }), "") << "no request has a job";
  const Planted planted = plant(path, run.new_path("planted"), 1, false);
  EXPECT_EQ(what_if(planted.path, [](CoreConfig&) {}).error().message,
            "has decisions that this quire would make differently, so the results of another configuration are unknown");
}

}  // namespace
}  // namespace quire::test
