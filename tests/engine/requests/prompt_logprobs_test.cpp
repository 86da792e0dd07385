// Prompt log probabilities in the engine around the simulated worker.
#include <gtest/gtest.h>

#include "engine/requests/asked_beside.h"
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

TEST_P(PromptLogprobs, MatchThePromptForAnyChunking) {
  const auto ask = [](EngineRequest& request, std::uint32_t i) {
    if (i % 3 != 0) request.sampling.prompt_logprobs = i % 5;
  };
  expect_for_any_chunking(GetParam(), {0U, 1U, 7U, 16U}, ask, expect_prompt_logprobs);
}

TEST_P(PromptLogprobs, AreEmptyForAPromptOfOneToken) {
  Collector sink;
  const auto engine = start(GetParam(), {});
  const EngineRequest request = asking(1, 3, 2);
  const Collector::Answer answer = sink.wait(engine->submit(request, sink).value());
  ASSERT_NE(answer.prompt_logprobs, nullptr);
  EXPECT_TRUE(answer.prompt_logprobs->empty());
}

TEST_P(PromptLogprobs, ARequestForThemSkipsThePrefixCacheButFillsIt) {
  EngineRequest silent = asking(50, 3, 2);
  silent.sampling.prompt_logprobs.reset();
  expect_reads_no_prefix_cache(GetParam(), asking(50, 3, 2), std::move(silent), expect_prompt_logprobs);
}

TEST_P(PromptLogprobs, AreSharedBetweenSiblings) {
  const auto check = [](const std::vector<Collector::Answer>& answers, const EngineRequest& request) {
    for (const Collector::Answer& answer : answers) {
      expect_prompt_logprobs(answer, request);
      EXPECT_EQ(answer.prompt_logprobs, answers.front().prompt_logprobs) << "siblings share one copy";
    }
  };
  expect_for_siblings(GetParam(), [](std::uint32_t length) { return asking(length, 20, 1); }, check);
}

TEST_P(PromptLogprobs, SiblingsHaveACopyAfterTheFirstEnds) {
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

TEST_P(PromptLogprobs, SiblingsGetThemWhenTheFirstIsAborted) {
  const auto ask = [](std::uint32_t length) { return asking(length, 30, 2); };
  const auto any = [](const Collector::Answer&, const EngineRequest&) {};  // the aborted request ended with prompt logprobs or before them
  expect_for_siblings_of_an_aborted_request(GetParam(), ask, any, expect_prompt_logprobs);
}

TEST_P(PromptLogprobs, AForkedChildHasNone) {
  const EngineRequest request = asking(30, 60, 2);
  const auto [parent, child] = answers_of_a_fork(GetParam(), request);
  expect_prompt_logprobs(parent, request);
  EXPECT_EQ(child.prompt_logprobs, nullptr);
  expect_equal(child, expected(request));
}

// The reset preempts requests: tokens in flight are sampled again, and the prompt is computed again.
TEST_P(PromptLogprobs, AreDeliveredOnceDespiteACacheReset) {
  expect_survives_cache_reset(GetParam(), asking(60, 40, 3), expect_prompt_logprobs);
}

TEST_P(PromptLogprobs, ATokenWithoutADistributionFailsItsRequestAndSiblings) {
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
      EXPECT_NE(answer.error.find("a prompt token"), std::string::npos) << answer.error;
      EXPECT_EQ(answer.prompt_logprobs, nullptr);
      EXPECT_EQ(answer.num_finals, 1U);
    }
    expect_prompt_logprobs(sink.wait(other), sound);
    expect_equal(sink.wait(unasked), expected(silent, kPoison));
    EXPECT_EQ(engine->stop(10.0), 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, PromptLogprobs, testing::ValuesIn(played_modes()), mode_name);

TEST(PromptLogprobsRefused, OutOfRangeOrWithABeamSearch) {
  Collector sink;
  const auto engine = start(kModes[0], {});
  EXPECT_EQ(engine->submit(asking(10, 3, 21), sink).error().field, "prompt_logprobs");
  EngineRequest search = asking(10, 3, 1, 2);
  search.beam_search = BeamSearchOptions{};
  EXPECT_EQ(engine->submit(search, sink).error().field, "prompt_logprobs");
}

TEST(PromptLogprobsRefused, WhenTheWorkerDoesNotSupportThem) {
  const auto engine = engine_without(&WorkerCapabilities::prompt_logprobs);
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
