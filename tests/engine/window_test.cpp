// Several cache groups around the simulated worker, which aborts the program if a block in the attention window differs from the plan.
// Blocks that a window has passed may have been reused.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/simulated_engine.h"

namespace quire {
namespace {

ModelInfo windowed_model(std::vector<std::uint32_t> windows, std::uint32_t context_length = 256) {
  ModelInfo model = simulated_model();
  model.num_layers = static_cast<std::uint32_t>(windows.size());
  model.sliding_windows = std::move(windows);
  model.context_length = context_length;
  return model;
}

class WindowTest : public testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, WindowTest, testing::ValuesIn(played_modes()), mode_name);

// Mixes windows (smaller and larger than a block) with full attention, in large caches and in caches that preempt and evict.
TEST_P(WindowTest, RandomRequestsMatchTheirExpectedAnswers) {
  for (const auto& [windows, num_blocks] : {std::pair(std::vector{3U, 3U, 3U, 0U}, 600U),
                                            {std::vector{24U, 24U, 0U}, 230U},
                                            {std::vector{40U, 40U}, 90U},
                                            {std::vector{1U}, 30U},
                                            {std::vector{10U, 0U, 24U}, 240U}}) {
    EngineOptions options;
    options.cache.block_size = 4;
    options.cache.num_blocks = num_blocks;
    options.scheduler.max_num_batched_tokens = 40;
    options.scheduler.max_num_seqs = 12;
    const auto engine = start(GetParam(), {.options = options, .model = windowed_model(windows)});
    Random random(windows.size());
    Collector sink;
    std::vector<std::pair<RequestId, EngineRequest>> sent;
    for (int i = 0; i < 150; ++i) {
      EngineRequest request = random_request(random);
      sent.emplace_back(engine->submit(request, sink).value(), request);
    }
    for (const auto& [id, request] : sent) expect_equal(sink.wait(id), expected(request));
    EXPECT_EQ(engine->stop(10.0), 0U);
    const EngineStats stats = engine->stats();
    EXPECT_EQ(stats.num_free_blocks, stats.num_blocks);
    EXPECT_GT(stats.prefix_cache_hits, 0U) << windows.size() << " layers";
    if (num_blocks < 600) EXPECT_GT(stats.num_evicted_blocks, 0U) << windows.size() << " layers";
  }
}

// All layers have windows: prompts of a hundred blocks run in a cache of nine blocks, one by one or together.
TEST_P(WindowTest, APromptLongerThanTheCacheRunsIfItsWindowsFit) {
  EngineOptions options;
  options.cache.block_size = 4;
  options.cache.num_blocks = 10;
  options.scheduler.max_num_batched_tokens = 8;
  const auto engine = start(GetParam(), {.options = options, .model = windowed_model({6, 6}, 1000)});
  EXPECT_EQ(engine->options().scheduler.max_model_len, 1000U);
  Collector sink;
  std::vector<RequestId> ids;
  for (TokenId first : {1, 2, 3}) ids.push_back(engine->submit(make_request(400, 20, first), sink).value());
  for (const RequestId id : ids) EXPECT_GT(sink.wait(id).tokens.size(), 0U);
  EXPECT_EQ(engine->stop(10.0), 0U);
  EXPECT_EQ(engine->stats().num_free_blocks, 9U);
}

// The worker receives a separate block table for each group: deltas of the groups are not confused.
TEST_P(WindowTest, EveryGroupHasASeparateBlockTable) {
  std::atomic<std::uint32_t> groups_seen = 0;
  EngineOptions options;
  options.scheduler.max_num_batched_tokens = 64;
  const auto engine = start(GetParam(), {.options = options,
                                         .before_step =
                                             [&](const StepPlan& plan) {
                                               for (const BlockTableDelta& delta : plan.table_deltas) groups_seen |= 1U << delta.group;
                                             },
                                         .model = windowed_model({20, 20, 20, 0})});
  Collector sink;
  const EngineRequest request = make_request(100, 30);
  expect_equal(sink.wait(engine->submit(request, sink).value()), expected(request));
  EXPECT_EQ(groups_seen, 0b1111U);
}

}  // namespace
}  // namespace quire
