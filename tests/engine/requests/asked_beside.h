#pragma once
// Shared runs for extra outputs of requests (prompt log probabilities, routed experts) in the engine around the simulated worker. Each
// caller passes how a request asks for the output and how an answer is checked.
#include <gtest/gtest.h>

#include <functional>

#include "engine/paused_engine.h"
#include "engine/simulated_engine.h"

namespace quire {

using Check = std::function<void(const Collector::Answer&, const EngineRequest&)>;

// Runs 40 random requests per engine: prompts in chunks, with many blocks and with so few that requests are preempted. ask(request, i)
// makes some of them ask.
inline void expect_for_any_chunking(const Mode& mode, std::initializer_list<std::uint32_t> chunks,
                                    const std::function<void(EngineRequest&, std::uint32_t)>& ask, const Check& check) {
  for (const std::uint32_t chunk : chunks) {
    for (const std::uint32_t num_blocks : {200U, 20U}) {
      EngineOptions options;
      options.cache.num_blocks = num_blocks;
      options.scheduler.max_num_seqs = 8;
      options.scheduler.long_prefill_token_threshold = chunk;
      Collector sink;
      const auto engine = start(mode, {.options = options});
      Random random(chunk);
      std::vector<std::pair<RequestId, EngineRequest>> submitted;
      {
        const PausedEngine paused(*engine);
        for (std::uint32_t i = 0; i < 40; ++i) {
          EngineRequest request = random_request(random);
          ask(request, i);
          submitted.emplace_back(engine->submit(request, sink).value(), request);
        }
      }
      for (const auto& [id, request] : submitted) {
        const Collector::Answer answer = sink.wait(id);
        expect_equal(answer, expected(request));
        check(answer, request);
      }
      engine->stop(10.0);
      if (num_blocks == 20) EXPECT_GT(engine->stats().num_preemptions, 0U);
    }
  }
}

// `asking` has a prompt of 50 tokens. Without the extra output, a request with this prompt finds three blocks.
inline void expect_reads_no_prefix_cache(const Mode& mode, const EngineRequest& asking, EngineRequest silent, const Check& check) {
  Collector sink;
  const auto engine = start(mode, {});
  sink.wait(engine->submit(asking, sink).value());
  const Collector::Answer again = sink.wait(engine->submit(asking, sink).value());
  EXPECT_EQ(again.num_cached_tokens, 0U);
  check(again, asking);
  EXPECT_EQ(sink.wait(engine->submit(std::move(silent), sink).value()).num_cached_tokens, 48U);
}

// Runs twelve requests of four siblings each, with many blocks and with so few that some are preempted. check(answers, request) gets the
// four.
inline void expect_for_siblings(const Mode& mode, const std::function<EngineRequest(std::uint32_t length)>& asking,
                                const std::function<void(const std::vector<Collector::Answer>&, const EngineRequest&)>& check) {
  for (const std::uint32_t num_blocks : {200U, 24U}) {
    EngineOptions options;
    options.cache.num_blocks = num_blocks;
    options.scheduler.long_prefill_token_threshold = 16;
    Collector sink;
    const auto engine = start(mode, {.options = options});
    std::vector<std::pair<RequestId, EngineRequest>> submitted;
    {
      const PausedEngine paused(*engine);
      for (std::uint32_t i = 0; i < 12; ++i) {
        EngineRequest request = asking(20 + 3 * i);
        request.n = 4;
        submitted.emplace_back(engine->submit(request, sink).value(), request);
      }
    }
    for (const auto& [first, request] : submitted) {
      std::vector<Collector::Answer> answers;
      for (std::uint32_t i = 0; i < request.n; ++i) answers.push_back(sink.wait(RequestId{first.value + i}));
      for (const Collector::Answer& answer : answers) expect_equal(answer, expected(request));
      check(answers, request);
    }
    engine->stop(10.0);
    if (num_blocks == 24) EXPECT_GT(engine->stats().num_preemptions, 0U);
  }
}

// Aborts the first of three siblings at any point: with the prompt done and the siblings forked, or before. check_first checks its answer.
inline void expect_for_siblings_of_an_aborted_request(const Mode& mode, const std::function<EngineRequest(std::uint32_t length)>& asking,
                                                      const Check& check_first, const Check& check) {
  Collector sink;
  const auto engine = start(mode, {});
  for (std::uint32_t round = 0; round < 60; ++round) {
    EngineRequest request = asking(20 + round);
    request.n = 3;
    const RequestId first = engine->submit(request, sink).value();
    if (round % 3 == 0) sink.wait_for_tokens(first, 1);
    engine->finish(first, FinishReason::abort);
    check_first(sink.wait(first), request);
    for (std::uint32_t i = 1; i < 3; ++i) {
      const Collector::Answer answer = sink.wait(RequestId{first.value + i});
      expect_equal(answer, expected(request));
      check(answer, request);
    }
  }
}

// A cache reset preempts two siblings; the engine has delivered some tokens or none.
inline void expect_survives_cache_reset(const Mode& mode, EngineRequest asking, const Check& check) {
  Collector sink;
  const auto engine = start(mode, {});
  asking.n = 2;
  for (std::uint32_t round = 0; round < 40; ++round) {
    const RequestId first = engine->submit(asking, sink).value();
    if (round % 2 == 0) sink.wait_for_tokens(first, round / 2);
    Answered reset;
    engine->reset_prefix_cache({.preempt_running = true}, reset.callback());
    reset.wait();
    for (std::uint32_t i = 0; i < asking.n; ++i) {
      const Collector::Answer answer = sink.wait(RequestId{first.value + i});
      expect_equal(answer, expected(asking));
      check(answer, asking);
    }
  }
}

// Forks a running request that asks and returns the answers (parent, child).
inline std::pair<Collector::Answer, Collector::Answer> answers_of_a_fork(const Mode& mode, const EngineRequest& asking) {
  Gate gate;
  const auto engine = start(mode, {.options = {}, .before_step = [&gate](const StepPlan&) { gate.pass(); }});
  Collector sink;
  const RequestId parent = engine->submit(asking, sink).value();
  gate.permits.release(6);
  sink.wait_for_tokens(parent, 3);
  const RequestId child = engine->fork(parent, {.n = 1}, sink).value();
  gate.open_for_good();
  std::pair answers{sink.wait(parent), sink.wait(child)};
  engine->stop(10.0);
  return answers;
}

}  // namespace quire
