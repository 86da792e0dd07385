// Priorities, pause, resume and reset of a running engine, with and without asynchronous scheduling.
#include <gtest/gtest.h>

#include <thread>

#include "engine/simulated_engine.h"

namespace quire {
namespace {

class ControlTest : public testing::TestWithParam<Mode> {
 protected:
  // A request that runs until the context is full.
  static EngineRequest endless(TokenId first = 1) {
    EngineRequest request = make_request(20, 200, first);
    request.sampling.ignore_eos = true;
    return request;
  }
};
INSTANTIATE_TEST_SUITE_P(Modes, ControlTest, testing::ValuesIn(played_modes()), mode_name);

TEST_P(ControlTest, RunsRequestsWithSmallerPriorityValuesFirst) {
  Gate gate;
  EngineOptions options;
  options.scheduler.policy = SchedulingPolicy::priority;
  options.scheduler.max_num_seqs = 1;
  const auto engine = start(GetParam(), {.options = options, .before_step = [&](const StepPlan&) { gate.pass(); }});
  Collector sink;
  EngineRequest urgent = make_request(5, 2);
  urgent.priority = -10;
  const RequestId first = engine->submit(urgent, sink).value();
  std::vector<RequestId> ids;
  for (const std::int64_t priority : {5, -3, 1}) {
    EngineRequest request = make_request(5, 2, static_cast<TokenId>(20 + priority));
    request.priority = priority;
    ids.push_back(engine->submit(request, sink).value());
  }
  gate.open_for_good();
  sink.wait(first);
  for (const RequestId id : ids) sink.wait(id);
  EXPECT_EQ(sink.finished_order(), (std::vector<RequestId>{first, ids[1], ids[2], ids[0]}));
}

TEST_P(ControlTest, RefusesPrioritiesUnderFirstComeFirstServed) {
  Collector sink;
  const auto engine = start(GetParam(), {});
  EngineRequest request = make_request(5, 2);
  request.priority = 1;
  EXPECT_EQ(engine->submit(request, sink).error().field, "priority");
}

TEST_P(ControlTest, KeptRequestsContinueAfterResumeWithTheSameAnswers) {
  for (const bool clear_cache : {false, true}) {
    Gate gate;
    const auto engine = start(GetParam(), {.options = {}, .before_step = [&](const StepPlan&) { gate.pass(); }});
    Collector sink;
    const EngineRequest request = endless();
    const RequestId id = engine->submit(request, sink).value();
    gate.permits.release(5);
    sink.wait_for_tokens(id, 3);
    Answered paused;
    engine->pause({.mode = PauseMode::keep, .clear_cache = clear_cache}, paused.callback());
    gate.open_for_good();
    EXPECT_EQ(paused.wait(), true);
    EXPECT_TRUE(engine->stats().is_paused);
    const EngineStats before = engine->stats();
    EXPECT_EQ(before.num_free_blocks == before.num_blocks, clear_cache) << "the blocks of a cleared cache are free";
    const EngineRequest late = make_request(30, 5, 60);
    const RequestId late_id = engine->submit(late, sink).value();
    EXPECT_FALSE(sink.wait_for_end(late_id, 20)) << "new requests wait";
    EXPECT_EQ(engine->stats().num_steps, before.num_steps) << "no step runs";
    Answered resumed;
    engine->resume(resumed.callback());
    EXPECT_EQ(resumed.wait(), true);
    EXPECT_FALSE(engine->stats().is_paused);
    expect_equal(sink.wait(id), expected(request));
    expect_equal(sink.wait(late_id), expected(late));
    EXPECT_EQ(engine->stop(10.0), 0U);
  }
}

TEST_P(ControlTest, PauseWithWaitDrainsRunningRequestsAndHoldsNewOnes) {
  Gate gate;
  const auto engine = start(GetParam(), {.options = {}, .before_step = [&](const StepPlan&) { gate.pass(); }});
  Collector sink;
  const EngineRequest running = make_request(20, 30);
  const RequestId id = engine->submit(running, sink).value();
  gate.permits.release(4);
  sink.wait_for_tokens(id, 2);
  Answered paused;
  engine->pause({.mode = PauseMode::wait, .clear_cache = true}, paused.callback());
  const EngineRequest late = make_request(20, 30, 7);
  const RequestId late_id = engine->submit(late, sink).value();
  EXPECT_FALSE(paused.ready(5));
  gate.open_for_good();
  EXPECT_EQ(paused.wait(), true);
  expect_equal(sink.wait(id), expected(running));
  EXPECT_FALSE(sink.wait_for_end(late_id, 20));
  Answered resumed;
  engine->resume(resumed.callback());
  EXPECT_EQ(resumed.wait(), true);
  const Collector::Answer answer = sink.wait(late_id);
  expect_equal(answer, expected(late));
  EXPECT_EQ(answer.num_cached_tokens, 0U) << "the cache was cleared";
}

TEST_P(ControlTest, PauseWithAbortEndsAllRequests) {
  Gate gate;
  EngineOptions options;
  options.scheduler.max_num_seqs = 1;
  const auto engine = start(GetParam(), {.options = options, .before_step = [&](const StepPlan&) { gate.pass(); }});
  Collector sink;
  const RequestId running = engine->submit(endless(), sink).value();
  const RequestId waiting = engine->submit(endless(9), sink).value();
  gate.permits.release(3);
  sink.wait_for_tokens(running, 1);
  Answered paused;
  engine->pause({}, paused.callback());
  gate.open_for_good();
  EXPECT_EQ(paused.wait(), true);
  EXPECT_EQ(sink.wait(running).reason, FinishReason::abort);
  EXPECT_EQ(sink.wait(waiting).reason, FinishReason::abort);
  EXPECT_EQ(engine->stats().num_free_blocks, engine->stats().num_blocks);
  Answered resumed;
  engine->resume(resumed.callback());
  const EngineRequest next = make_request(20, 5);
  expect_equal(sink.wait(engine->submit(next, sink).value()), expected(next));
  EXPECT_EQ(engine->stop(10.0), 0U);
}

TEST_P(ControlTest, ResumeEndsTheWaitOfAPause) {
  Gate gate;
  const auto engine = start(GetParam(), {.options = {}, .before_step = [&](const StepPlan&) { gate.pass(); }});
  Collector sink;
  const EngineRequest request = make_request(20, 30);
  const RequestId id = engine->submit(request, sink).value();
  gate.permits.release(3);
  sink.wait_for_tokens(id, 1);
  Answered paused, resumed;
  engine->pause({.mode = PauseMode::wait}, paused.callback());
  engine->resume(resumed.callback());
  gate.open_for_good();
  EXPECT_EQ(resumed.wait(), true);
  EXPECT_EQ(paused.wait(), false);
  expect_equal(sink.wait(id), expected(request));
}

TEST_P(ControlTest, ATextModelHasNoEncoderCacheToReset) {
  const auto engine = start(GetParam(), {.options = {}});
  Answered answered;
  engine->reset_encoder_cache(answered.callback());
  EXPECT_EQ(answered.wait(), false);
}

TEST_P(ControlTest, ResetsTheCacheWhenIdleAndWhenBusyOnlyWithPreemption) {
  Gate gate;
  gate.open_for_good();
  const auto engine = start(GetParam(), {.options = {}, .before_step = [&](const StepPlan&) { gate.pass(); }});
  Collector sink;
  const EngineRequest request = make_request(40, 2);
  sink.wait(engine->submit(request, sink).value());
  EXPECT_EQ(sink.wait(engine->submit(request, sink).value()).num_cached_tokens, 32U);
  Answered idle;
  engine->reset_prefix_cache({}, idle.callback());
  EXPECT_EQ(idle.wait(), true);
  EXPECT_EQ(sink.wait(engine->submit(request, sink).value()).num_cached_tokens, 0U);

  Answered paused, refused;
  gate.close();
  const EngineRequest running = endless();
  const RequestId id = engine->submit(running, sink).value();
  gate.permits.release(5);
  sink.wait_for_tokens(id, 3);
  engine->pause({.mode = PauseMode::keep, .clear_cache = false}, paused.callback());
  gate.open_for_good();
  EXPECT_EQ(paused.wait(), true);
  engine->reset_prefix_cache({}, refused.callback());
  EXPECT_EQ(refused.wait(), false) << "a kept request holds blocks";
  Answered resumed, busy;
  gate.close();
  engine->resume(resumed.callback());
  engine->reset_prefix_cache({.preempt_running = true}, busy.callback());
  gate.open_for_good();
  EXPECT_EQ(busy.wait(), true);
  EXPECT_GE(engine->stats().num_preemptions, 1U);
  expect_equal(sink.wait(id), expected(running));
}

// Resets come in the middle of steps: tokens in flight are dropped and sampled again.
TEST_P(ControlTest, ResetsUnderLoadChangeNoAnswer) {
  EngineOptions options;
  options.cache.block_size = 4;
  options.cache.num_blocks = 80;
  options.scheduler.max_num_batched_tokens = 64;
  Collector sink;
  const auto engine = start(GetParam(), {.options = options});
  Random random(7);
  std::vector<std::pair<RequestId, EngineRequest>> open;
  for (int i = 0; i < 200; ++i) {
    EngineRequest request = random_request(random);
    const RequestId id = engine->submit(request, sink).value();
    open.emplace_back(id, std::move(request));
    if (random.chance(0.3)) {
      Answered done;
      engine->reset_prefix_cache({.preempt_running = true}, done.callback());
      EXPECT_EQ(done.wait(), true);
    }
    if (random.chance(0.1)) {
      Answered paused, resumed;
      engine->pause({.mode = PauseMode::keep, .clear_cache = random.chance(0.5)}, paused.callback());
      engine->resume(resumed.callback());
      EXPECT_TRUE(paused.wait().has_value());
      EXPECT_EQ(resumed.wait(), true);
    }
  }
  for (const auto& [id, request] : open) expect_equal(sink.wait(id), expected(request));
  EXPECT_EQ(engine->stop(10.0), 0U);
}

TEST_P(ControlTest, StoppingAPausedEngineAbortsItsKeptRequests) {
  Gate gate;
  const auto engine = start(GetParam(), {.options = {}, .before_step = [&](const StepPlan&) { gate.pass(); }});
  Collector sink;
  const RequestId id = engine->submit(endless(), sink).value();
  gate.permits.release(3);
  sink.wait_for_tokens(id, 1);
  Answered paused;
  engine->pause({.mode = PauseMode::keep, .clear_cache = false}, paused.callback());
  gate.open_for_good();
  EXPECT_EQ(paused.wait(), true);
  EXPECT_EQ(engine->stop(60.0), 1U) << "stop does not wait for paused requests";
  EXPECT_EQ(sink.wait(id).reason, FinishReason::abort);
  Answered late;
  engine->resume(late.callback());
  EXPECT_EQ(late.wait().error().code, ErrorCode::shutting_down);
}

// Each request has a better priority than the ones before it and delays them. They accumulate up to the bound. Clients beyond the bound get
// an error when they submit, and every accepted request ends with its answer.
TEST_P(ControlTest, RequestsWithEverBetterPrioritiesAreRefusedOrAnswered) {
  Gate gate;
  EngineOptions options;
  options.scheduler.policy = SchedulingPolicy::priority;
  options.scheduler.max_num_seqs = 2;
  options.scheduler.max_num_waiting = 2;
  options.cache.block_size = 4;
  options.cache.num_blocks = 12;
  const auto engine = start(GetParam(), {.options = options, .before_step = [&](const StepPlan&) { gate.pass(); }});
  Collector sink;
  std::vector<std::pair<RequestId, EngineRequest>> accepted;
  std::uint32_t num_refused = 0;
  const auto has_met_all = [&] { return num_refused > 0 && accepted.size() > 8 && engine->stats().num_preemptions > 4; };
  for (int i = 0; i < 20'000 && (i < 200 || !has_met_all()); ++i) {
    EngineRequest request = make_request(6, 30, static_cast<TokenId>(i));
    request.priority = -i;
    request.sampling.ignore_eos = true;
    if (const Result<RequestId> id = engine->submit(request, sink)) {
      accepted.emplace_back(*id, std::move(request));
    } else {
      EXPECT_EQ(id.error().code, ErrorCode::overloaded);
      ++num_refused;
    }
    gate.permits.release(2);
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  gate.open_for_good();
  for (const auto& [id, request] : accepted) expect_equal(sink.wait(id), expected(request));
  EXPECT_GT(num_refused, 0U);
  EXPECT_GT(accepted.size(), 8U);
  EXPECT_GT(engine->stats().num_preemptions, 4U);
  EXPECT_EQ(engine->stats().finished_error, 0U);
}

TEST_P(ControlTest, RefusesAResetOfAnExternalCacheWhenThereIsNone) {
  const auto engine = start(GetParam(), {});
  Answered refused;
  engine->reset_prefix_cache({.external = true}, refused.callback());
  const Result<bool> answer = refused.wait();
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code, ErrorCode::unsupported);
  EXPECT_EQ(answer.error().field, "reset_external");
}

}  // namespace
}  // namespace quire
