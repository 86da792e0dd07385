// Pooling requests around the simulated worker: they end with the hidden row of their last token.
#include <gtest/gtest.h>

#include "engine/paused_engine.h"
#include "engine/simulated_engine.h"

namespace quire {
namespace {

class Pooling : public testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, Pooling, testing::ValuesIn(played_modes()), mode_name);

constexpr PoolingKind kKinds[] = {PoolingKind::last, PoolingKind::first, PoolingKind::mean, PoolingKind::all};

EngineRequest pooled_request(std::uint32_t length, TokenId first = 1) {
  EngineRequest request = make_request(length, 1, first);
  request.pooling = true;
  return request;
}

void expect_pooled(const Collector::Answer& answer, const EngineRequest& request) {
  EXPECT_EQ(answer.pooled, simulated_pooled(request.prompt, request.sampling.pooling));
  EXPECT_TRUE(answer.tokens.empty());
  EXPECT_EQ(answer.reason, FinishReason::stop) << answer.error;
  EXPECT_EQ(answer.num_finals, 1U);
  EXPECT_EQ(answer.num_outputs_after_final, 0U);
}

TEST_P(Pooling, ReturnsTheRowOfTheLastTokenAmongSamplingRequests) {
  for (const std::uint32_t chunk : {0U, 7U}) {
    for (const std::uint32_t num_blocks : {200U, 20U}) {
      EngineOptions options;
      options.cache.num_blocks = num_blocks;
      options.scheduler.long_prefill_token_threshold = chunk;
      Collector sink;
      const auto engine = start(GetParam(), {.options = options});
      Random random(num_blocks + chunk);
      std::vector<std::pair<RequestId, EngineRequest>> submitted;
      {
        const PausedEngine paused(*engine);
        for (std::uint32_t i = 0; i < 60; ++i) {
          EngineRequest request = random_request(random);
          request.pooling = i % 3 == 0;
          if (request.pooling) request.sampling.logprobs.reset();
          if (request.pooling) request.sampling.pooling.kind = kKinds[i / 3 % 4];
          if (request.pooling && i % 12 == 0) request.sampling.pooling.logits_of = {7, 3};
          submitted.emplace_back(engine->submit(request, sink).value(), request);
        }
      }
      for (const auto& [id, request] : submitted)
        if (request.pooling)
          expect_pooled(sink.wait(id), request);
        else
          expect_equal(sink.wait(id), expected(request));
      EXPECT_EQ(engine->stop(10.0), 0U);
      EXPECT_EQ(engine->stats().num_free_blocks, engine->stats().num_blocks);
      if (num_blocks == 20) EXPECT_GT(engine->stats().num_preemptions, 0U);
    }
  }
}

TEST_P(Pooling, ReadsThePrefixCacheAndRecomputesTheLastToken) {
  Collector sink;
  const auto engine = start(GetParam(), {});
  const EngineRequest request = pooled_request(48);
  expect_pooled(sink.wait(engine->submit(request, sink).value()), request);
  const Collector::Answer again = sink.wait(engine->submit(request, sink).value());
  EXPECT_EQ(again.num_cached_tokens, 32U);
  expect_pooled(again, request);
}

// Cached blocks have no hidden rows, as in vLLM.
TEST_P(Pooling, OfMoreThanTheLastRowSkipsThePrefixCacheButFillsIt) {
  Collector sink;
  const auto engine = start(GetParam(), {});
  EngineRequest whole = pooled_request(48);
  const EngineRequest last = pooled_request(48);
  for (const PoolingKind kind : {PoolingKind::mean, PoolingKind::all, PoolingKind::mean, PoolingKind::all}) {
    whole.sampling.pooling.kind = kind;
    const Collector::Answer answer = sink.wait(engine->submit(whole, sink).value());
    EXPECT_EQ(answer.num_cached_tokens, 0U);
    expect_pooled(answer, whole);
  }
  EXPECT_EQ(sink.wait(engine->submit(last, sink).value()).num_cached_tokens, 32U);
}

// A swapped-in request would have no hidden rows for its earlier tokens.
TEST_P(Pooling, OfAllRowsIsRecomputedWhenOtherRequestsAreSwapped) {
  EngineOptions options;
  options.cache.num_blocks = 20;
  options.kv_swap = {.bytes = std::uint64_t{1} << 20U, .choice = SwapChoice::always};
  options.scheduler.long_prefill_token_threshold = 16;
  Collector sink;
  const auto engine = start(GetParam(), {.options = options});
  std::vector<std::pair<RequestId, EngineRequest>> submitted;
  {
    const PausedEngine paused(*engine);
    for (TokenId i = 0; i < 30; ++i) {
      EngineRequest request = i % 2 == 0 ? pooled_request(120, i * 7) : make_request(30, 60, i * 5);
      if (request.pooling) request.sampling.pooling.kind = i % 4 == 0 ? PoolingKind::mean : PoolingKind::all;
      submitted.emplace_back(engine->submit(request, sink).value(), request);
    }
  }
  for (const auto& [id, request] : submitted)
    if (request.pooling)
      expect_pooled(sink.wait(id), request);
    else
      expect_equal(sink.wait(id), expected(request));
  EXPECT_EQ(engine->stop(10.0), 0U);
  EXPECT_GT(engine->stats().num_preemptions, 0U);
}

TEST_P(Pooling, ANonFiniteRowFailsOnlyItsRequest) {
  Collector sink;
  const auto engine = start(GetParam(), {.options = {}, .poison = kPoison});
  EngineRequest poisoned = pooled_request(20);
  poisoned.prompt.back() = kPoison;
  const EngineRequest sound = pooled_request(20, 3);
  for (const PoolingKind kind : {PoolingKind::last, PoolingKind::all}) {
    poisoned.sampling.pooling.kind = kind;
    const RequestId bad = engine->submit(poisoned, sink).value(), good = engine->submit(sound, sink).value();
    EXPECT_EQ(sink.wait(bad).reason, FinishReason::error);
    EXPECT_TRUE(sink.wait(bad).pooled.empty());
    expect_pooled(sink.wait(good), sound);
  }
}

TEST_P(Pooling, MayBeAbortedButNotForked) {
  Gate gate;
  const auto engine = start(GetParam(), {.options = {}, .before_step = [&gate](const StepPlan&) { gate.pass(); }});
  Collector sink;
  const EngineRequest other = make_request(10, 20);
  const RequestId running = engine->submit(other, sink).value();
  gate.permits.release(2);
  sink.wait_for_tokens(running, 1);
  gate.is_full.wait(false);  // no step is left that could run the next submissions before the abort
  const RequestId parent = engine->submit(pooled_request(30), sink).value();
  const RequestId aborted = engine->submit(pooled_request(30, 5), sink).value();
  engine->finish(aborted, FinishReason::abort);
  const auto child = engine->fork(parent, {.n = 1}, sink);
  gate.open_for_good();
  if (child) EXPECT_EQ(sink.wait(*child).reason, FinishReason::error);
  expect_pooled(sink.wait(parent), pooled_request(30));
  EXPECT_EQ(sink.wait(aborted).reason, FinishReason::abort);
  EXPECT_FALSE(sink.wait(running).tokens.empty());
}

TEST(PoolingRefused, RefusesOptionsThatNeedOutputTokens) {
  Collector sink;
  const auto engine = start(kModes[0], {});
  const auto field = [&](auto change) {
    EngineRequest request = pooled_request(10);
    change(request);
    const auto refused = engine->submit(request, sink);
    return refused ? "" : refused.error().field;
  };
  EXPECT_EQ(field([](EngineRequest& request) { request.n = 2; }), "n");
  EXPECT_EQ(field([](EngineRequest& request) { request.beam_search = BeamSearchOptions{}; }), "beam_search");
  EXPECT_EQ(field([](EngineRequest& request) { request.sampling.logprobs = 0; }), "logprobs");
  EXPECT_EQ(field([](EngineRequest& request) { request.sampling.prompt_logprobs = 0; }), "prompt_logprobs");
  EXPECT_EQ(field([](EngineRequest& request) { request.sampling.pooling.logits_of = {1, 1 << 20}; }), "pooling.logits_of");
  EXPECT_EQ(field([](EngineRequest& request) { request.sampling.pooling.logits_of.assign(257, 1); }), "pooling.logits_of");
  EXPECT_EQ(field([](EngineRequest& request) { request.sampling.pooling = {.kind = PoolingKind::mean, .logits_of = {1}}; }),
            "pooling.kind");
  EXPECT_EQ(field([](EngineRequest& request) {
              request.pooling = false;
              request.sampling.pooling.kind = PoolingKind::mean;
            }),
            "pooling");
}

// The rows of all tokens wait in memory for the last one.
TEST(PoolingRefused, RefusesRowsBeyondTheRequestLimit) {
  ModelInfo model = simulated_model();
  model.hidden_size = static_cast<std::uint32_t>(kMaxPooledValues / 20);
  Collector sink;
  const auto engine = start(kModes[0], {.options = {}, .model = model});
  EngineRequest request = pooled_request(21);
  request.sampling.pooling.kind = PoolingKind::all;
  const auto refused = engine->submit(request, sink);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().field, "prompt");
  EXPECT_EQ(refused.error().remedy, "send at most 20 tokens");
  request.prompt.resize(20);
  expect_pooled(sink.wait(engine->submit(request, sink).value()), request);
  request = pooled_request(21);
  expect_pooled(sink.wait(engine->submit(request, sink).value()), request);
}

TEST(PoolingRefused, IsRefusedWhenTheWorkerDoesNotPool) {
  const auto engine = engine_without(&WorkerCapabilities::pooling);
  Collector sink;
  const auto refused = engine->submit(pooled_request(10), sink);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
  EXPECT_EQ(refused.error().field, "pooling");
}

}  // namespace
}  // namespace quire
