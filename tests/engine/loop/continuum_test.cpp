// Tests CONTINUUM in the engine: pins expire while no request waits, and leave nothing at a reset or a shutdown.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/manual_clock.h"
#include "engine/loop/step_loop.h"
#include "engine/simulated_engine.h"

namespace quire {
namespace {

EngineOptions continuum_options() {
  EngineOptions options;
  options.scheduler.policy = SchedulingPolicy::continuum;
  options.cache.num_blocks = 100;
  return options;
}

EngineRequest turn(const std::string& job, const std::string& tool) {
  EngineRequest request = make_request(40, 3);
  request.sampling.ignore_eos = true;
  request.tags.job = job;
  request.tags.tool = tool;
  return request;
}

TEST(Continuum, AnIdleLoopWaitsForAPinToExpireAndThenFreesItsBlocks) {
  for (const bool async_scheduling : {false, true}) {
    EngineOptions given = continuum_options();
    given.scheduler.async_scheduling = async_scheduling;
    const ResolvedEngine resolved = resolve_options(given, simulated_model(), {1, 0}).value();
    SimulatedWorkerOptions worker{
        .limits = resolved.limits, .block_size = 16, .num_blocks = 100, .vocab_size = kVocab, .poison = -1, .before_step = {}};
    const auto clock = std::make_shared<ManualClock>(100.0);
    Collector sink;
    StepLoop::Options looping{.eos_ids = {kEos}, .async_scheduling = async_scheduling};
    looping.seams.clock = clock;
    StepLoop loop(Core::create(resolved.core).value(), std::make_unique<SimulatedWorker>(std::move(worker)), std::move(looping));
    loop.add({.id = RequestId{7}, .request = turn("job", "ls"), .block_keys = {}, .sink = &sink, .arrival_s = 0.0});
    while (loop.has_work()) loop.step();
    loop.deliver();
    EXPECT_EQ(sink.wait(RequestId{7}).num_finals, 1U);
    EXPECT_EQ(loop.stats().num_pinned, 1U);
    EXPECT_FALSE(loop.can_step());
    EXPECT_DOUBLE_EQ(loop.wait_s().value(), 2.0);
    clock->now += 2.0;
    EXPECT_TRUE(loop.can_step());
    int num_steps = 0;
    for (; loop.can_step() && num_steps < 10; ++num_steps) loop.step();
    EXPECT_LE(num_steps, 2) << "at most one plan and its result";
    EXPECT_EQ(loop.wait_s(), std::nullopt);
    EXPECT_EQ(loop.stats().num_pinned, 0U);
    loop.check_all_free();
  }
}

class ContinuumTest : public testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, ContinuumTest, testing::ValuesIn(played_modes()), mode_name);

TEST_P(ContinuumTest, ReadsTheToolNameFromTheOutputWhenTheTagsHaveNone) {
  Collector sink;
  const auto engine = start(GetParam(), {.options = continuum_options()});
  EngineRequest request = turn("job", "");
  std::vector<TokenId> seen;
  request.tool_name_function = [&seen](std::span<const TokenId> outputs) {
    seen.assign(outputs.begin(), outputs.end());
    return std::string("ls");
  };
  const Expected wanted = expected(request);
  expect_equal(sink.wait(engine->submit(request, sink).value()), wanted);
  EXPECT_EQ(seen, wanted.tokens);
  EXPECT_EQ(engine->stats().num_pinned, 1U);
  request.tags.is_last_step = true;
  sink.wait(engine->submit(request, sink).value());
  EXPECT_EQ(engine->stats().num_pinned, 0U) << "the job is over";
}

TEST_P(ContinuumTest, AResetReleasesPins) {
  Collector sink;
  const auto engine = start(GetParam(), {.options = continuum_options()});
  sink.wait(engine->submit(turn("job", "ls"), sink).value());
  EXPECT_EQ(engine->stats().num_pinned, 1U);
  Answered answered;
  engine->reset_prefix_cache({}, answered.callback());
  EXPECT_TRUE(answered.wait().value());
  EXPECT_EQ(engine->stats().num_free_blocks, engine->stats().num_blocks);
}

TEST_P(ContinuumTest, AStopReleasesPinsWithoutWaitingForThem) {
  Collector sink;
  const auto engine = start(GetParam(), {.options = continuum_options()});
  for (const char* job : {"a", "b"}) sink.wait(engine->submit(turn(job, "ls"), sink).value());
  EXPECT_EQ(engine->stats().num_pinned, 2U);
  EXPECT_EQ(engine->stop(60.0), 0U);  // aborts the program if a block is still held
  EXPECT_EQ(engine->stats().num_pinned, 0U);
}

TEST_P(ContinuumTest, APinExpiresWhileTheEngineIsIdle) {
  Collector sink;
  const auto engine = start(GetParam(), {.options = continuum_options()});
  sink.wait(engine->submit(turn("job", "ls"), sink).value());
  const auto start = std::chrono::steady_clock::now();
  while (engine->stats().num_pinned > 0 && std::chrono::steady_clock::now() - start < std::chrono::seconds(60))
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(engine->stats().num_pinned, 0U);
  EXPECT_LT(engine->stats().num_steps, 100U) << "the loop sleeps instead of spinning";
}

TEST_P(ContinuumTest, RefusesATagThatIsTooLong) {
  Collector sink;
  const auto engine = start(GetParam(), {.options = continuum_options()});
  EXPECT_EQ(engine->submit(turn(std::string(257, 'x'), "ls"), sink).error().field, "job_id");
  EXPECT_EQ(engine->submit(turn("job", std::string(257, 'x')), sink).error().field, "tool");
}

}  // namespace
}  // namespace quire
