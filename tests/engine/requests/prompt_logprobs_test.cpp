// Log probabilities of prompts in the engine, around the simulated worker.
#include <gtest/gtest.h>

#include "engine/simulated_engine.h"
#include "support/toy_tier.h"

namespace quire {
namespace {

class PromptLogprobs : public testing::TestWithParam<Mode> {};

std::vector<PositionLogprobs> wanted_logprobs(const EngineRequest& request) {
  std::vector<PositionLogprobs> wanted;
  const std::span<const TokenId> prompt(request.prompt);
  for (std::size_t i = 1; i < prompt.size(); ++i)
    wanted.push_back(simulated_logprobs(prompt.first(i), kVocab, prompt[i], request.sampling.prompt_logprobs.value_or(0)));
  return wanted;
}

bool same(const std::vector<PositionLogprobs>& a, const std::vector<PositionLogprobs>& b) {
  return std::ranges::equal(a, b, [](const PositionLogprobs& x, const PositionLogprobs& y) {
    return std::ranges::equal(x.entries, y.entries, [](const TokenLogprob& p, const TokenLogprob& q) {
      return p.token == q.token && p.logprob == q.logprob && p.rank == q.rank;
    });
  });
}

void expect_prompt_logprobs(const Collector::Answer& answer, const EngineRequest& request) {
  ASSERT_EQ(answer.num_prompt_logprobs, request.sampling.prompt_logprobs ? 1U : 0U) << answer.error;
  if (answer.prompt_logprobs != nullptr) EXPECT_TRUE(same(*answer.prompt_logprobs, wanted_logprobs(request)));
}

EngineRequest asking(std::uint32_t length, std::uint32_t max_tokens, std::uint32_t count, std::uint32_t n = 1) {
  EngineRequest request = make_request(length, max_tokens);
  request.sampling.prompt_logprobs = count;
  request.sampling.ignore_eos = true;
  request.n = n;
  return request;
}

TEST_P(PromptLogprobs, AreThoseOfThePromptHoweverItIsCut) {
  for (const std::uint32_t chunk : {0U, 1U, 7U, 16U}) {
    for (const std::uint32_t num_blocks : {200U, 20U}) {
      EngineOptions options;
      options.cache.num_blocks = num_blocks;
      options.scheduler.max_num_seqs = 8;
      options.scheduler.long_prefill_token_threshold = chunk;
      Collector sink;
      const auto engine = start(GetParam(), {.options = options});
      Random random(chunk);
      std::vector<std::pair<RequestId, EngineRequest>> submitted;
      for (std::uint32_t i = 0; i < 40; ++i) {
        EngineRequest request = random_request(random);
        if (i % 3 != 0) request.sampling.prompt_logprobs = i % 5;
        submitted.emplace_back(engine->submit(request, sink).value(), request);
      }
      for (const auto& [id, request] : submitted) {
        const Collector::Answer answer = sink.wait(id);
        expect_equal(answer, expected(request));
        expect_prompt_logprobs(answer, request);
      }
      engine->stop(10.0);
      if (num_blocks == 20) EXPECT_GT(engine->stats().num_preemptions, 0U);
    }
  }
}

TEST_P(PromptLogprobs, OfAPromptOfOneTokenThereAreNone) {
  Collector sink;
  const auto engine = start(GetParam(), {});
  const EngineRequest request = asking(1, 3, 2);
  const Collector::Answer answer = sink.wait(engine->submit(request, sink).value());
  ASSERT_NE(answer.prompt_logprobs, nullptr);
  EXPECT_TRUE(answer.prompt_logprobs->empty());
}

TEST_P(PromptLogprobs, SuchARequestReadsNoPrefixCacheAndOthersReadItsBlocks) {
  Collector sink;
  const auto engine = start(GetParam(), {});
  EngineRequest request = asking(50, 3, 2);
  sink.wait(engine->submit(request, sink).value());
  const Collector::Answer again = sink.wait(engine->submit(request, sink).value());
  EXPECT_EQ(again.num_cached_tokens, 0U);
  expect_prompt_logprobs(again, request);
  request.sampling.prompt_logprobs.reset();
  EXPECT_EQ(sink.wait(engine->submit(request, sink).value()).num_cached_tokens, 48U);
}

TEST_P(PromptLogprobs, SiblingsShareThem) {
  for (const std::uint32_t num_blocks : {200U, 24U}) {
    EngineOptions options;
    options.cache.num_blocks = num_blocks;
    options.scheduler.long_prefill_token_threshold = 16;
    Collector sink;
    const auto engine = start(GetParam(), {.options = options});
    std::vector<std::pair<RequestId, EngineRequest>> submitted;
    for (std::uint32_t i = 0; i < 12; ++i) {
      EngineRequest request = asking(20 + 3 * i, 20, 1, 4);
      submitted.emplace_back(engine->submit(request, sink).value(), request);
    }
    for (const auto& [first, request] : submitted) {
      const auto shared = sink.wait(first).prompt_logprobs;
      for (std::uint32_t i = 0; i < 4; ++i) {
        const Collector::Answer answer = sink.wait(RequestId{first.value + i});
        expect_equal(answer, expected(request));
        expect_prompt_logprobs(answer, request);
        EXPECT_EQ(answer.prompt_logprobs, shared) << "one copy for all";
      }
    }
    engine->stop(10.0);
    if (num_blocks == 24) EXPECT_GT(engine->stats().num_preemptions, 0U);
  }
}

TEST_P(PromptLogprobs, SiblingsOfOneThatEndsFirstHaveTheirOwn) {
  Collector sink;
  const auto engine = start(GetParam(), {});
  Answered paused, resumed;
  engine->pause({.mode = PauseMode::keep, .clear_cache = false}, paused.callback());
  ASSERT_TRUE(paused.wait().has_value());
  const EngineRequest request = asking(30, 6, 2, 3);
  const RequestId first = engine->submit(request, sink).value();
  engine->finish(first, FinishReason::abort);
  engine->resume(resumed.callback());
  EXPECT_EQ(sink.wait(first).prompt_logprobs, nullptr);
  for (std::uint32_t i = 1; i < 3; ++i) expect_prompt_logprobs(sink.wait(RequestId{first.value + i}), request);
}

// Whatever the engine thread is at: with the prompt done, and its siblings forked, or before.
TEST_P(PromptLogprobs, SiblingsDoNotMissThemWhenTheFirstIsAborted) {
  Collector sink;
  const auto engine = start(GetParam(), {});
  for (std::uint32_t round = 0; round < 60; ++round) {
    const EngineRequest request = asking(20 + round, 30, 2, 3);
    const RequestId first = engine->submit(request, sink).value();
    if (round % 3 == 0) sink.wait_for_tokens(first, 1);
    engine->finish(first, FinishReason::abort);
    for (std::uint32_t i = 1; i < 3; ++i) {
      const Collector::Answer answer = sink.wait(RequestId{first.value + i});
      expect_equal(answer, expected(request));
      expect_prompt_logprobs(answer, request);
    }
  }
}

TEST_P(PromptLogprobs, AForkHasNone) {
  Gate gate;
  const auto engine = start(GetParam(), {.options = {}, .before_step = [&gate](const StepPlan&) { gate.pass(); }});
  Collector sink;
  const EngineRequest request = asking(30, 60, 2);
  const RequestId parent = engine->submit(request, sink).value();
  gate.permits.release(6);
  sink.wait_for_tokens(parent, 3);
  const RequestId child = engine->fork(parent, {.n = 1}, sink).value();
  gate.open_for_good();
  expect_prompt_logprobs(sink.wait(parent), request);
  EXPECT_EQ(sink.wait(child).prompt_logprobs, nullptr);
  expect_equal(sink.wait(child), expected(request));
}

// What was in flight is drawn again after a reset that puts requests back, and the prompt computed again.
TEST_P(PromptLogprobs, ComeOnceThoughACacheResetPutsRequestsBack) {
  Collector sink;
  const auto engine = start(GetParam(), {});
  for (std::uint32_t round = 0; round < 20; ++round) {
    const EngineRequest request = asking(60, 40, 3, 2);
    const RequestId first = engine->submit(request, sink).value();
    Answered reset;
    engine->reset_prefix_cache({.preempt_running = true}, reset.callback());
    reset.wait();
    for (std::uint32_t i = 0; i < 2; ++i) {
      const Collector::Answer answer = sink.wait(RequestId{first.value + i});
      expect_equal(answer, expected(request));
      expect_prompt_logprobs(answer, request);
    }
  }
}

TEST_P(PromptLogprobs, ATokenWithoutADistributionEndsItsRequestAndSiblings) {
  for (const std::uint32_t chunk : {0U, 16U}) {
    EngineOptions options;
    options.scheduler.long_prefill_token_threshold = chunk;
    Collector sink;
    const auto engine = start(GetParam(), {.options = options, .poison = kPoison});
    EngineRequest poisoned = asking(60, 10, 1, 3), sound = asking(60, 10, 1), silent = make_request(60, 10);
    poisoned.prompt[20] = silent.prompt[20] = kPoison;
    silent.sampling.ignore_eos = true;
    const RequestId first = engine->submit(poisoned, sink).value();
    const RequestId other = engine->submit(sound, sink).value();
    const RequestId unasked = engine->submit(silent, sink).value();
    for (std::uint32_t i = 0; i < 3; ++i) {
      const Collector::Answer answer = sink.wait(RequestId{first.value + i});
      EXPECT_EQ(answer.reason, FinishReason::error);
      EXPECT_NE(answer.error.find("token of the prompt"), std::string::npos) << answer.error;
      EXPECT_EQ(answer.prompt_logprobs, nullptr);
      EXPECT_EQ(answer.num_finals, 1U);
    }
    expect_prompt_logprobs(sink.wait(other), sound);
    expect_equal(sink.wait(unasked), expected(silent, kPoison));
    EXPECT_EQ(engine->stop(10.0), 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, PromptLogprobs, testing::ValuesIn(kModes), mode_name);

TEST(PromptLogprobsRefused, OutOfRangeOrWithASearch) {
  Collector sink;
  const auto engine = start(kModes[0], {});
  EXPECT_EQ(engine->submit(asking(10, 3, 21), sink).error().field, "prompt_logprobs");
  EngineRequest search = asking(10, 3, 1, 2);
  search.beam_search = BeamSearchOptions{};
  EXPECT_EQ(engine->submit(search, sink).error().field, "prompt_logprobs");
}

class SilentWorker final : public SimulatedWorker {
 public:
  using SimulatedWorker::SimulatedWorker;
  [[nodiscard]] WorkerCapabilities capabilities() const override {
    WorkerCapabilities can = SimulatedWorker::capabilities();
    can.prompt_logprobs = false;
    return can;
  }
};

TEST(PromptLogprobsRefused, WhereTheWorkerHasNone) {
  EngineOptions options;
  options.cache.num_blocks = 20;
  options = resolve_options(options, simulated_model(), {1, 0}).value();
  auto worker = std::make_unique<SilentWorker>(SimulatedWorkerOptions{
      .limits = worker_limits(options), .block_size = options.cache.block_size, .num_blocks = 20, .vocab_size = kVocab});
  const auto engine = make_engine(options, simulated_model(), std::move(worker)).value();
  Collector sink;
  const auto refused = engine->submit(asking(10, 3, 1), sink);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
  EXPECT_EQ(refused.error().field, "prompt_logprobs");
  EXPECT_EQ(sink.wait(engine->submit(make_request(10, 3), sink).value()).tokens.size(), 3U);
  engine->stop(10.0);
}

}  // namespace
}  // namespace quire
