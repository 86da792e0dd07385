// Several requests with one prompt: the engine forks all but the first from the first.
#include <gtest/gtest.h>

#include "engine/simulated_engine.h"

namespace quire {
namespace {

class Siblings : public testing::TestWithParam<Mode> {};

RequestId after(RequestId first, std::uint32_t i) {
  return RequestId{first.value + i};
}

EngineRequest siblings_of(std::uint32_t n, std::uint32_t length, std::uint32_t max_tokens) {
  EngineRequest request = make_request(length, max_tokens);
  request.n = n;
  request.sampling.ignore_eos = true;
  return request;
}

TEST_P(Siblings, GetTheAnswersOfSeparateRequests) {
  for (const std::uint32_t num_blocks : {200U, 24U}) {
    EngineOptions options;
    options.cache.num_blocks = num_blocks;
    Collector sink;
    const auto engine = start(GetParam(), {.options = options});
    std::vector<std::pair<RequestId, EngineRequest>> submitted;
    for (std::uint32_t i = 0; i < 20; ++i) {
      EngineRequest request = siblings_of(5, 20 + i, 1 + i * 3);
      submitted.emplace_back(engine->submit(request, sink).value(), request);
    }
    for (const auto& [first, request] : submitted)
      for (std::uint32_t i = 0; i < request.n; ++i) expect_equal(sink.wait(after(first, i)), expected(request));
    engine->stop(10.0);
    EXPECT_EQ(engine->stats().num_forks, 80U);
    if (num_blocks == 200) EXPECT_GT(engine->stats().num_copied_blocks, 20U);
    EXPECT_EQ(engine->stats().finished_length, 100U);
  }
}

TEST_P(Siblings, AnAbortedSiblingEndsAlone) {
  Collector sink;
  const auto engine = start(GetParam(), {});
  Answered paused, resumed;
  engine->pause({.mode = PauseMode::keep, .clear_cache = false}, paused.callback());
  ASSERT_TRUE(paused.wait().has_value());
  const EngineRequest request = siblings_of(4, 30, 6);
  const RequestId first = engine->submit(request, sink).value();
  const RequestId second = engine->submit(request, sink).value();
  engine->finish(first, FinishReason::abort);
  engine->finish(after(second, 2), FinishReason::abort);
  engine->resume(resumed.callback());
  for (std::uint32_t i = 0; i < 4; ++i) {
    if (i == 0)
      EXPECT_EQ(sink.wait(first).reason, FinishReason::abort);
    else
      expect_equal(sink.wait(after(first, i)), expected(request));
    if (i == 2)
      EXPECT_EQ(sink.wait(after(second, i)).reason, FinishReason::abort);
    else
      expect_equal(sink.wait(after(second, i)), expected(request));
  }
  engine->stop(10.0);
  EXPECT_EQ(engine->stats().num_forks, 2U) << "only the second request forks";
}

// The finish may come before or after the engine thread takes the requests.
TEST_P(Siblings, AllMayEndImmediately) {
  Collector sink;
  const auto engine = start(GetParam(), {});
  for (int round = 0; round < 50; ++round) {
    const RequestId first = engine->submit(siblings_of(3, 30, 100), sink).value();
    for (std::uint32_t i = 0; i < 3; ++i) engine->finish(after(first, i), FinishReason::abort);
    for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(sink.wait(after(first, i)).num_finals, 1U);
  }
  engine->stop(10.0);
}

TEST_P(Siblings, EndWithTheEngine) {
  Collector sink;
  const auto engine = start(GetParam(), {});
  Answered paused;
  engine->pause({.mode = PauseMode::keep, .clear_cache = false}, paused.callback());
  ASSERT_TRUE(paused.wait().has_value());
  const RequestId first = engine->submit(siblings_of(3, 30, 100), sink).value();
  EXPECT_EQ(engine->stop(0.0), 3U);
  for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(sink.wait(after(first, i)).reason, FinishReason::abort);
}

// When the prompt would begin, no sibling waits for it any more.
TEST_P(Siblings, AllMayEndBeforeTheirPromptBegins) {
  Collector sink;
  const auto engine = start(GetParam(), {.options = {}});
  const auto pause = [&engine] {
    Answered paused;
    engine->pause({.mode = PauseMode::keep, .clear_cache = false}, paused.callback());
    ASSERT_TRUE(paused.wait().has_value());
  };
  pause();
  const RequestId first = engine->submit(siblings_of(2, 30, 100), sink).value();
  pause();  // the engine thread has taken the request
  for (const RequestId id : {after(first, 1), first}) {
    engine->finish(id, FinishReason::abort);
    EXPECT_EQ(sink.wait(id).reason, FinishReason::abort);
  }
  engine->resume([](const Result<bool>&) {});
  const EngineRequest request = siblings_of(2, 30, 4);
  const RequestId next = engine->submit(request, sink).value();
  for (std::uint32_t i = 0; i < 2; ++i) expect_equal(sink.wait(after(next, i)), expected(request));
}

TEST_P(Siblings, RefusesMoreThanTheQueueCanHold) {
  EngineOptions options;
  options.scheduler.max_num_waiting = 3;
  Collector sink;
  const auto engine = start(GetParam(), {.options = options});
  EXPECT_EQ(engine->submit(siblings_of(0, 30, 4), sink).error().field, "n");
  EXPECT_EQ(engine->submit(siblings_of(1000, 30, 4), sink).error().field, "n");
  const Error never = engine->submit(siblings_of(4, 30, 4), sink).error();
  EXPECT_EQ(never.code, ErrorCode::invalid_argument) << "a retry cannot succeed";
  EXPECT_EQ(never.field, "n");
  EXPECT_NE(never.remedy.find('3'), std::string::npos);
  const EngineRequest request = siblings_of(3, 30, 4);
  const RequestId first = engine->submit(request, sink).value();
  for (std::uint32_t i = 0; i < 3; ++i) expect_equal(sink.wait(after(first, i)), expected(request));
}

TEST_P(Siblings, AChildContinuesFromItsParentsToken) {
  Gate gate;
  const auto engine = start(GetParam(), {.options = {}, .before_step = [&gate](const StepPlan&) { gate.pass(); }});
  Collector sink;
  EngineRequest request = siblings_of(1, 30, 60);
  request.sampling.logprobs = 2;
  const RequestId parent = engine->submit(request, sink).value();
  gate.permits.release(6);
  sink.wait_for_tokens(parent, 3);
  const RequestId first = engine->fork(parent, {.n = 3, .max_tokens = 90}, sink).value();
  gate.open_for_good();
  expect_equal(sink.wait(parent), expected(request));
  request.sampling.max_tokens = 90;
  for (std::uint32_t i = 0; i < 3; ++i) {
    const Collector::Answer answer = sink.wait(after(first, i));
    expect_equal(answer, expected(request));
    EXPECT_EQ(answer.logprobs.size(), 90U) << "entries before the fork are empty";
  }
  engine->stop(10.0);
  EXPECT_EQ(engine->stats().num_forks, 3U);
}

TEST_P(Siblings, RefusesForksOfUnknownRequestsAndTooSmallLimits) {
  Gate gate;
  const auto engine = start(GetParam(), {.options = {}, .before_step = [&gate](const StepPlan&) { gate.pass(); }});
  Collector sink;
  EXPECT_EQ(engine->fork(RequestId{77}, {}, sink).error().code, ErrorCode::not_found);
  const RequestId parent = engine->submit(siblings_of(1, 30, 60), sink).value();
  gate.permits.release(6);
  sink.wait_for_tokens(parent, 3);
  EXPECT_EQ(engine->fork(parent, {.n = 0}, sink).error().field, "n");
  const RequestId first = engine->fork(parent, {.n = 2, .max_tokens = 3}, sink).value();
  gate.open_for_good();
  for (std::uint32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(sink.wait(after(first, i)).reason, FinishReason::error);
    EXPECT_NE(sink.wait(after(first, i)).error.find("max_tokens"), std::string::npos) << sink.wait(after(first, i)).error;
  }
  sink.wait(parent);
  engine->stop(10.0);
  EXPECT_EQ(engine->fork(parent, {}, sink).error().code, ErrorCode::not_found);
  EXPECT_EQ(engine->stats().num_forks, 0U);
}

// Only the family bound limits forks of forks. Members that end make room for others.
TEST_P(Siblings, BoundsAForkFamily) {
  EngineOptions options;
  options.cache.num_blocks = 2000;
  Gate gate;
  const auto engine = start(GetParam(), {.options = options, .before_step = [&gate](const StepPlan&) { gate.pass(); }});
  Collector sink;
  const RequestId parent = engine->submit(siblings_of(1, 30, 60), sink).value();
  gate.permits.release(6);
  sink.wait_for_tokens(parent, 3);
  std::vector<RequestId> children;
  for (int i = 0; i < 3; ++i) {
    const RequestId first = engine->fork(parent, {.n = 100}, sink).value();
    for (std::uint32_t j = 0; j < 100; ++j) children.push_back(after(first, j));
  }
  gate.open_for_good();
  std::uint32_t num_refused = 0;
  for (const RequestId child : children) {
    const Collector::Answer answer = sink.wait(child);
    if (answer.reason != FinishReason::error) continue;
    ++num_refused;
    EXPECT_NE(answer.error.find("requests of one fork family have not ended"), std::string::npos) << answer.error;
  }
  EXPECT_EQ(num_refused, 45U) << "the bound is 256 including the parent";
  engine->stop(10.0);
}

INSTANTIATE_TEST_SUITE_P(Engine, Siblings, testing::ValuesIn(played_modes()), mode_name);

}  // namespace
}  // namespace quire
