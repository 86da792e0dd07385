// The experts of requests' tokens in the engine, around the simulated worker: as if each were alone.
#include <gtest/gtest.h>

#include "engine/simulated_engine.h"

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

TEST_P(RoutedExpertsEngine, AreThoseOfEachTokenButTheLastHoweverItIsComputed) {
  for (const std::uint32_t chunk : {0U, 1U, 16U}) {
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
        request.sampling.routed_experts = i % 3 != 0;
        submitted.emplace_back(engine->submit(request, sink).value(), request);
      }
      for (const auto& [id, request] : submitted) {
        const Collector::Answer answer = sink.wait(id);
        expect_equal(answer, expected(request));
        expect_routed(answer, request);
      }
      engine->stop(10.0);
      if (num_blocks == 20) EXPECT_GT(engine->stats().num_preemptions, 0U);
    }
  }
}

TEST_P(RoutedExpertsEngine, SuchARequestReadsNoPrefixCacheAndOthersReadItsBlocks) {
  Collector sink;
  const auto engine = start(GetParam(), {});
  EngineRequest request = routed_request(50, 3);
  sink.wait(engine->submit(request, sink).value());
  const Collector::Answer again = sink.wait(engine->submit(request, sink).value());
  EXPECT_EQ(again.num_cached_tokens, 0U);
  expect_routed(again, request);
  request.sampling.routed_experts = false;
  EXPECT_EQ(sink.wait(engine->submit(request, sink).value()).num_cached_tokens, 48U);
}

TEST_P(RoutedExpertsEngine, SiblingsHaveTheirOwnBehindThePromptTheyShare) {
  for (const std::uint32_t num_blocks : {200U, 24U}) {
    EngineOptions options;
    options.cache.num_blocks = num_blocks;
    options.scheduler.long_prefill_token_threshold = 16;
    Collector sink;
    const auto engine = start(GetParam(), {.options = options});
    std::vector<std::pair<RequestId, EngineRequest>> submitted;
    for (std::uint32_t i = 0; i < 12; ++i) {
      EngineRequest request = routed_request(20 + 3 * i, 20, 4);
      submitted.emplace_back(engine->submit(request, sink).value(), request);
    }
    for (const auto& [first, request] : submitted)
      for (std::uint32_t i = 0; i < 4; ++i) expect_routed(sink.wait(RequestId{first.value + i}), request);
    engine->stop(10.0);
  }
}

TEST_P(RoutedExpertsEngine, SiblingsDoNotMissThemWhenTheFirstIsAborted) {
  Collector sink;
  const auto engine = start(GetParam(), {});
  for (std::uint32_t round = 0; round < 40; ++round) {
    const EngineRequest request = routed_request(20 + round, 30, 3);
    const RequestId first = engine->submit(request, sink).value();
    if (round % 3 == 0) sink.wait_for_tokens(first, 1);
    engine->finish(first, FinishReason::abort);
    expect_routed(sink.wait(first), request);
    for (std::uint32_t i = 1; i < 3; ++i) expect_routed(sink.wait(RequestId{first.value + i}), request);
  }
}

TEST_P(RoutedExpertsEngine, ComeOnceThoughACacheResetPutsRequestsBack) {
  Collector sink;
  const auto engine = start(GetParam(), {});
  for (std::uint32_t round = 0; round < 20; ++round) {
    const EngineRequest request = routed_request(60, 40, 2);
    const RequestId first = engine->submit(request, sink).value();
    if (round % 2 == 0) sink.wait_for_tokens(first, round);
    Answered reset;
    engine->reset_prefix_cache({.preempt_running = true}, reset.callback());
    reset.wait();
    for (std::uint32_t i = 0; i < 2; ++i) expect_routed(sink.wait(RequestId{first.value + i}), request);
  }
}

TEST_P(RoutedExpertsEngine, AClientsForkHasNone) {
  Gate gate;
  const auto engine = start(GetParam(), {.options = {}, .before_step = [&gate](const StepPlan&) { gate.pass(); }});
  Collector sink;
  const EngineRequest request = routed_request(30, 60);
  const RequestId parent = engine->submit(request, sink).value();
  gate.permits.release(6);
  sink.wait_for_tokens(parent, 3);
  const RequestId child = engine->fork(parent, {.n = 1}, sink).value();
  gate.open_for_good();
  expect_routed(sink.wait(parent), request);
  EXPECT_TRUE(sink.wait(child).experts.empty());
  expect_equal(sink.wait(child), expected(request));
}

INSTANTIATE_TEST_SUITE_P(Modes, RoutedExpertsEngine, testing::ValuesIn(kModes), mode_name);

TEST(RoutedExpertsRefused, WithWhatHasNone) {
  Collector sink;
  const auto engine = start(kModes[0], {});
  EngineRequest search = routed_request(10, 3, 2), session = routed_request(10, 3), pooling = routed_request(10, 1);
  search.beam_search = BeamSearchOptions{};
  session.session = pooling.pooling = true;
  for (const EngineRequest& request : {search, session, pooling}) EXPECT_EQ(engine->submit(request, sink).error().field, "routed_experts");
}

class DenseWorker final : public SimulatedWorker {
 public:
  using SimulatedWorker::SimulatedWorker;
  [[nodiscard]] WorkerCapabilities capabilities() const override {
    WorkerCapabilities can = SimulatedWorker::capabilities();
    can.routed_experts = false;
    return can;
  }
};

TEST(RoutedExpertsRefused, WhereTheModelHasNone) {
  EngineOptions options;
  options.cache.num_blocks = 20;
  options = resolve_options(options, simulated_model(), {1, 0}).value();
  auto worker = std::make_unique<DenseWorker>(SimulatedWorkerOptions{
      .limits = worker_limits(options), .block_size = options.cache.block_size, .num_blocks = 20, .vocab_size = kVocab});
  const auto engine = make_engine(options, simulated_model(), std::move(worker)).value();
  Collector sink;
  EXPECT_EQ(engine->submit(routed_request(10, 3), sink).error().field, "routed_experts");
  engine->stop(10.0);
}

}  // namespace
}  // namespace quire
