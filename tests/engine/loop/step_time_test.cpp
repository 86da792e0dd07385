// Tests StepTimePredictor on machines whose speed is known: steps end up close to the target, also after the speed changes.
#include "engine/loop/step_time.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "base/random.h"
#include "engine/paused_engine.h"
#include "engine/simulated_engine.h"

namespace quire::test {
namespace {

// A machine that needs fixed times for each decode, each prompt token, and each token that attention reads for a prompt token.
struct Machine {
  double decode_s = 0.005, prompt_token_s = 0.001, context_read_s = 0.0;

  [[nodiscard]] double run(const StepWork& work) const {
    return work.num_decodes * decode_s + work.num_prompt_tokens * prompt_token_s + work.num_context_reads * context_read_s;
  }
};

// Runs steps with as many prompt tokens as fit and returns the time of the last one.
double run_full_steps(StepTimePredictor& model, const Machine& machine, std::uint32_t num_decodes, int num_steps) {
  double seconds = 0.0;
  for (int i = 0; i < num_steps; ++i) {
    const PrefillLimits limits = model.limits();
    const StepWork work{.num_prompt_tokens = num_decodes > 0 ? limits.beside_decodes : limits.without_decodes, .num_decodes = num_decodes};
    seconds = machine.run(work);
    model.observe(work, seconds);
  }
  return seconds;
}

TEST(StepTimePredictor, FillsTheTargetOnAnyMachine) {
  for (const double prompt_token_s : {0.00001, 0.0005, 0.004}) {
    const Machine machine{.decode_s = 0.005, .prompt_token_s = prompt_token_s};
    StepTimePredictor model(0.1);
    model.observe({.num_decodes = 1}, machine.decode_s);
    EXPECT_NEAR(run_full_steps(model, machine, 1, 40), 0.1, 0.013) << prompt_token_s;
    EXPECT_NEAR(run_full_steps(model, machine, 0, 40), 0.4, 0.051) << prompt_token_s;
  }
}

TEST(StepTimePredictor, FollowsAMachineThatGetsBusy) {
  StepTimePredictor model(0.1);
  Machine machine;
  model.observe({.num_decodes = 1}, machine.decode_s);
  run_full_steps(model, machine, 1, 40);
  machine = {.decode_s = 0.015, .prompt_token_s = 0.003};
  EXPECT_NEAR(run_full_steps(model, machine, 1, 20), 0.1, 0.015);
  machine = {};
  EXPECT_NEAR(run_full_steps(model, machine, 1, 40), 0.1, 0.015);
}

// The process was stopped for a minute during a step, and prompts keep arriving: no later step shows how long decodes take alone.
TEST(StepTimePredictor, ForgetsAStepThatTookAMinute) {
  for (const std::uint32_t num_prompt_tokens : {0U, 80U}) {
    StepTimePredictor model(0.1);
    const Machine machine;
    model.observe({.num_decodes = 1}, machine.decode_s);
    run_full_steps(model, machine, 1, 40);
    model.observe({.num_prompt_tokens = num_prompt_tokens, .num_decodes = 1}, 60.0);
    EXPECT_LE(run_full_steps(model, machine, 1, 1), 0.2);
    EXPECT_NEAR(run_full_steps(model, machine, 1, 40), 0.1, 0.015);
  }
}

TEST(StepTimePredictor, KnowsThatFewerDecodesTakeLessTime) {
  StepTimePredictor model(0.1);
  const Machine machine{.decode_s = 0.004, .prompt_token_s = 0.001};
  for (int i = 0; i < 20; ++i) model.observe({.num_decodes = 64}, machine.run({.num_decodes = 64}));
  EXPECT_NEAR(run_full_steps(model, machine, 64, 40), 2 * 64 * 0.004, 0.06) << "at least twice the time of the decodes";
  EXPECT_NEAR(run_full_steps(model, machine, 1, 40), 0.1, 0.015) << "one stream is left, and prompts keep arriving";
}

TEST(StepTimePredictor, GivesAStepAtLeastTwiceTheTimeOfItsDecodes) {
  const Machine machine{.decode_s = 0.4, .prompt_token_s = 0.01};
  StepTimePredictor model(0.1);
  model.observe({.num_decodes = 1}, machine.decode_s);
  EXPECT_NEAR(run_full_steps(model, machine, 1, 40), 0.8, 0.051);
}

TEST(StepTimePredictor, KeepsChunksLargeEnoughForTheirCost) {
  const Machine machine{.decode_s = 0.01, .prompt_token_s = 10.0};
  StepTimePredictor model(0.1);
  run_full_steps(model, machine, 1, 40);
  EXPECT_EQ(model.limits(), (PrefillLimits{.beside_decodes = 16, .without_decodes = 64}));
}

TEST(StepTimePredictor, ChangesLimitsRarely) {
  Random random(7);
  StepTimePredictor model(0.1);
  Machine machine;
  run_full_steps(model, machine, 1, 40);
  int num_changes = 0;
  PrefillLimits last = model.limits();
  for (int i = 0; i < 1000; ++i) {
    const StepWork work{.num_prompt_tokens = last.beside_decodes, .num_decodes = 1};
    model.observe(work, machine.run(work) * (0.95 + 0.1 * random.unit()));
    num_changes += model.limits() != last ? 1 : 0;
    last = model.limits();
  }
  EXPECT_LE(num_changes, 10) << "noise of 5 % changes no limit";
}

TEST(StepTimePredictor, PredictsTheTimeOfOtherSteps) {
  StepTimePredictor model(0.1);
  EXPECT_EQ(model.predict_s({.num_prompt_tokens = 3}), 0.0) << "nothing is known yet";
  const Machine machine;
  model.observe({.num_decodes = 1}, machine.decode_s);
  model.observe({.num_prompt_tokens = 100}, machine.run({.num_prompt_tokens = 100}));
  for (const StepWork& work : {StepWork{.num_prompt_tokens = 50, .num_decodes = 1}, StepWork{.num_decodes = 1}})
    EXPECT_NEAR(model.predict_s(work), machine.run(work), 1e-9);
  EXPECT_EQ(model.predict_s({.num_prompt_tokens = 3, .has_encoder_inputs = true}), 0.0);
}

TEST(StepTimePredictor, IgnoresTimesThatAreNone) {
  StepTimePredictor model(0.1);
  const PrefillLimits before = model.limits();
  for (const double seconds : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()})
    model.observe({.num_prompt_tokens = 10}, seconds);
  model.observe({.num_prompt_tokens = 10, .has_encoder_inputs = true}, 100.0);
  EXPECT_EQ(model.limits(), before);
}

// A value counts a quarter in its average, and as four times the average at most.
TEST(StepTimePredictor, AveragesTheNewestTimesExactly) {
  StepTimePredictor decodes(1.0);
  const StepWork one{.num_decodes = 1};
  for (const auto& [seconds, average] : {std::pair(1.0, 1.0), {2.0, 1.25}, {0.25, 1.0}, {4.0, 1.75}, {7.0, 3.0625}, {1000.0, 5.359375}}) {
    decodes.observe(one, seconds);
    EXPECT_DOUBLE_EQ(decodes.predict_s(one), average) << seconds;
  }
  StepTimePredictor prompts(1.0);
  for (const auto& [seconds, average] : {std::pair(10.0, 1.0), {20.0, 1.25}, {1000.0, 2.1875}}) {
    prompts.observe({.num_prompt_tokens = 10}, seconds);
    EXPECT_DOUBLE_EQ(prompts.predict_s({.num_prompt_tokens = 1}), average) << seconds;
  }
}

// Decodes take their part of a step first, in proportion to their number, and 90 % of it at most.
TEST(StepTimePredictor, SplitsAStepIntoDecodesAndPromptTokens) {
  struct Case {
    std::uint32_t num_decodes;
    double seconds, decode_s, prompt_token_s;
  };
  for (const Case& one : {Case{0, 8.0, 4.0, 0.8}, Case{2, 8.0, 4.0, 0.6}, Case{4, 8.0, 4.0, 0.4}, Case{9, 8.0, 4.0, 0.4},
                          Case{4, 4.0, 3.6, 0.04}, Case{2, 1.0, 1.8, 0.01}}) {
    SCOPED_TRACE(one.num_decodes);
    StepTimePredictor model(1.0);
    model.observe({.num_decodes = 4}, 4.0);
    model.observe({.num_prompt_tokens = 10, .num_decodes = one.num_decodes}, one.seconds);
    EXPECT_NEAR(model.predict_s({.num_decodes = 4}), one.decode_s, 1e-12);
    EXPECT_NEAR(model.predict_s({.num_prompt_tokens = 1}), one.prompt_token_s, 1e-12);
    EXPECT_NEAR(model.predict_s({.num_prompt_tokens = 5, .num_decodes = 2}), one.decode_s / 2 + 5 * one.prompt_token_s, 1e-12);
  }
}

// A chunk of a prompt, with one decode, after `context` other tokens. It has as many tokens as the limits allow.
StepWork chunk_after(double context, const PrefillLimits& limits) {
  const double double_at = limits.context_of_double_cost == 0 ? 1e12 : limits.context_of_double_cost;
  const double a = double_at + context;
  const auto num_tokens = static_cast<std::uint32_t>(std::sqrt(a * a + 2.0 * double_at * limits.beside_decodes) - a);
  return {.num_prompt_tokens = num_tokens, .num_context_reads = num_tokens * (context + 0.5 * num_tokens), .num_decodes = 1};
}

// After two long prompts the cost of a context is known. A request that continues after 30,000 cached tokens then keeps the target with its
// first chunk, and so does a new prompt after it.
TEST(StepTimePredictor, KnowsWhatALongContextCosts) {
  for (const double double_at : {500.0, 1500.0, 8000.0, 30'000.0}) {
    const Machine machine{.decode_s = 0.005, .prompt_token_s = 0.00005, .context_read_s = 0.00005 / double_at};
    StepTimePredictor model(0.1);
    model.observe({.num_decodes = 1}, machine.decode_s);
    const auto run = [&](double context) {
      const StepWork work = chunk_after(context, model.limits());
      const double seconds = machine.run(work);
      model.observe(work, seconds);
      return std::pair(context + work.num_prompt_tokens, seconds);
    };
    for (int i = 0; i < 2; ++i)
      for (double context = 0.0; context < 12'000.0;) context = run(context).first;
    EXPECT_NEAR(run(30'000.0).second, 0.1, 0.05) << double_at;
    for (int i = 0; i < 60; ++i) run(30'000.0);
    EXPECT_NEAR(run(30'000.0).second, 0.1, 0.02) << double_at;
    EXPECT_NEAR(run(0.0).second, 0.1, 0.04) << double_at;
  }
}

// The first limits are 64 tokens next to decodes and 256 without. A limit stays if it would
// rise by an eighth or less, or fall by a thirty-second or less.
TEST(StepTimePredictor, LimitsFollowTheTargetInCoarseSteps) {
  struct Case {
    double target_s;
    PrefillLimits limits;
  };
  for (const Case& one :
       {Case{1.0, {.beside_decodes = 64, .without_decodes = 256}}, Case{1.125, {.beside_decodes = 64, .without_decodes = 256}},
        Case{1.140625, {.beside_decodes = 73, .without_decodes = 292}}, Case{0.96875, {.beside_decodes = 64, .without_decodes = 256}},
        Case{0.953125, {.beside_decodes = 61, .without_decodes = 244}}, Case{0.859375, {.beside_decodes = 55, .without_decodes = 220}},
        Case{0.265625, {.beside_decodes = 17, .without_decodes = 68}}, Case{0.234375, {.beside_decodes = 16, .without_decodes = 64}},
        Case{1024.0, {.beside_decodes = 65'536, .without_decodes = 65'536}},
        Case{1e9, {.beside_decodes = 65'536, .without_decodes = 65'536}}}) {
    StepTimePredictor model(one.target_s);
    EXPECT_EQ(model.limits(), (PrefillLimits{.beside_decodes = 64, .without_decodes = 256})) << "nothing is known yet";
    model.observe({.num_prompt_tokens = 1}, 1.0 / 64);
    EXPECT_EQ(model.limits(), one.limits) << one.target_s;
  }
}

TEST(StepTimePredictor, LeavesTheDecodesOfTheLastStepTheirTime) {
  struct Case {
    double decode_s;
    std::uint32_t beside_decodes, without_decodes;
  };
  for (const Case& one : {Case{0.25, 48, 256}, Case{0.5, 32, 256}, Case{1.0, 64, 512}, Case{2.0, 128, 1024}}) {
    StepTimePredictor model(1.0);
    model.observe({.num_prompt_tokens = 1}, 1.0 / 64);
    for (int i = 0; i < 2; ++i) model.observe({.num_decodes = 3}, one.decode_s);
    EXPECT_EQ(model.limits(), (PrefillLimits{.beside_decodes = one.beside_decodes, .without_decodes = one.without_decodes}))
        << one.decode_s;
  }
}

// A worker that needs a millisecond for each prompt token: while a stream decodes, chunks fit into the target of 20 ms.
TEST(StepTimeTarget, LimitsTheChunksOfAnEngine) {
  std::vector<std::uint32_t> chunks;
  EngineOptions options;
  options.step_time_target_ms = 20;
  ModelInfo model = simulated_model();
  model.context_length = 1000;
  const auto run = [&](const StepPlan& plan) {
    for (const ScheduledRequest& s : plan.scheduled) {
      if (s.num_tokens > 1) std::this_thread::sleep_for(std::chrono::milliseconds(s.num_tokens));
      if (s.num_tokens > 1 && std::ranges::any_of(plan.scheduled, [](const ScheduledRequest& other) { return other.num_tokens == 1; }))
        chunks.push_back(s.num_tokens);
    }
  };
  auto engine = start(kModes[0], {.options = options, .before_step = run, .model = model});
  Collector sink;
  std::vector<RequestId> ids;
  {
    const PausedEngine paused(*engine);
    ids.push_back(engine->submit(make_request(5, 200), sink).value());
    ids.push_back(engine->submit(make_request(600, 1), sink).value());
  }
  (void)sink.wait(ids[1]);
  const EngineStats stats = engine->stats();
  (void)sink.wait(ids[0]);
  engine->stop(10.0);
  EXPECT_GE(chunks.size(), 20U);
  for (std::size_t i = 0; i < chunks.size(); ++i) EXPECT_LE(chunks[i], 23U) << "chunk " << i;
  EXPECT_GE(stats.prefill_limit, 16U);
  EXPECT_LE(stats.prefill_limit, 23U);
  EXPECT_GT(stats.predicted_steps_s, 0.0);
  EXPECT_GT(stats.measured_steps_s, 0.0);
}

}  // namespace
}  // namespace quire::test
