// Tests the predicted effect of another configuration: none for the same configuration, and the expected one otherwise.
#include <gtest/gtest.h>

#include <filesystem>

#include "engine/simulated_engine.h"
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

}  // namespace
}  // namespace quire::test
