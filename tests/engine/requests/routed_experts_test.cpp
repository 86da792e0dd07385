// The routed experts of requests' tokens in the engine around the simulated worker equal the experts of each request alone.
#include <gtest/gtest.h>

#include "engine/requests/asked_beside.h"

namespace quire {
namespace {

class RoutedExpertsEngine : public testing::TestWithParam<Mode> {};

void expect_routed(const Collector::Answer& answer, const EngineRequest& request) {
  std::vector<TokenId> history = request.prompt;
  history.insert(history.end(), answer.tokens.begin(), answer.tokens.end());
  std::vector<std::uint16_t> wanted;
  for (std::size_t end = 1; request.sampling.routed_experts && !answer.tokens.empty() && end < history.size(); ++end)
    std::ranges::copy(simulated_experts(std::span(history).first(end)), std::back_inserter(wanted));
  EXPECT_EQ(answer.experts, wanted);
}

EngineRequest routed_request(std::uint32_t length, std::uint32_t max_tokens, std::uint32_t n = 1) {
  EngineRequest request = make_request(length, max_tokens);
  request.sampling.routed_experts = true;
  request.sampling.ignore_eos = true;
  request.n = n;
  return request;
}

TEST_P(RoutedExpertsEngine, AreReportedForEachTokenButTheLastForAnyChunking) {
  const auto ask = [](EngineRequest& request, std::uint32_t i) { request.sampling.routed_experts = i % 3 != 0; };
  expect_for_any_chunking(GetParam(), {0U, 1U, 16U}, ask, expect_routed);
}

TEST_P(RoutedExpertsEngine, ARequestForThemSkipsThePrefixCacheButFillsIt) {
  EngineRequest silent = routed_request(50, 3);
  silent.sampling.routed_experts = false;
  expect_reads_no_prefix_cache(GetParam(), routed_request(50, 3), std::move(silent), expect_routed);
}

TEST_P(RoutedExpertsEngine, SiblingsHaveSeparateExpertsAfterTheSharedPrompt) {
  const auto check = [](const std::vector<Collector::Answer>& answers, const EngineRequest& request) {
    for (const Collector::Answer& answer : answers) expect_routed(answer, request);
  };
  expect_for_siblings(GetParam(), [](std::uint32_t length) { return routed_request(length, 20); }, check);
}

TEST_P(RoutedExpertsEngine, SiblingsGetThemWhenTheFirstIsAborted) {
  const auto asking = [](std::uint32_t length) { return routed_request(length, 30); };
  expect_for_siblings_of_an_aborted_request(GetParam(), asking, expect_routed, expect_routed);
}

TEST_P(RoutedExpertsEngine, AreDeliveredOnceDespiteACacheReset) {
  expect_survives_cache_reset(GetParam(), routed_request(60, 40), expect_routed);
}

TEST_P(RoutedExpertsEngine, AForkedChildHasNone) {
  const EngineRequest request = routed_request(30, 60);
  const auto [parent, child] = answers_of_a_fork(GetParam(), request);
  expect_routed(parent, request);
  EXPECT_TRUE(child.experts.empty());
  expect_equal(child, expected(request));
}

INSTANTIATE_TEST_SUITE_P(Modes, RoutedExpertsEngine, testing::ValuesIn(played_modes()), mode_name);

TEST(RoutedExpertsRefused, WithUnsupportedOptions) {
  Collector sink;
  const auto engine = start(kModes[0], {});
  EngineRequest search = routed_request(10, 3, 2), session = routed_request(10, 3), pooling = routed_request(10, 1);
  search.beam_search = BeamSearchOptions{};
  session.session = pooling.pooling = true;
  for (const EngineRequest& request : {search, session, pooling}) EXPECT_EQ(engine->submit(request, sink).error().field, "routed_experts");
}

TEST(RoutedExpertsRefused, WhenTheModelHasNoExperts) {
  const auto engine = engine_without(&WorkerCapabilities::routed_experts);
  Collector sink;
  EXPECT_EQ(engine->submit(routed_request(10, 3), sink).error().field, "routed_experts");
  engine->stop(10.0);
}

}  // namespace
}  // namespace quire
