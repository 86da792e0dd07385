// Tests StepTimePredictor on machines whose speed is known: steps end up close to the target, also after the speed changes.
#include "engine/loop/step_time.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/random.h"

namespace quire::test {
namespace {

// A machine that needs fixed times for decodes and for each prompt token.
struct Machine {
  double decode_s = 0.005, prompt_token_s = 0.001;

  [[nodiscard]] double run(const StepWork& work) const {
    return (work.has_decodes ? decode_s : 0.0) + work.num_prompt_tokens * prompt_token_s;
  }
};

// Runs steps with as many prompt tokens as fit and returns the time of the last one.
double run_full_steps(StepTimePredictor& model, const Machine& machine, bool has_decodes, int num_steps) {
  double seconds = 0.0;
  for (int i = 0; i < num_steps; ++i) {
    const PrefillLimits limits = model.limits();
    const StepWork work{.num_prompt_tokens = has_decodes ? limits.beside_decodes : limits.without_decodes, .has_decodes = has_decodes};
    seconds = machine.run(work);
    model.observe(work, seconds);
  }
  return seconds;
}

TEST(StepTimePredictor, FillsTheTargetOnAnyMachine) {
  for (const double prompt_token_s : {0.00001, 0.0005, 0.004}) {
    const Machine machine{.decode_s = 0.005, .prompt_token_s = prompt_token_s};
    StepTimePredictor model(0.1);
    model.observe({.has_decodes = true}, machine.decode_s);
    EXPECT_NEAR(run_full_steps(model, machine, true, 40), 0.1, 0.013) << prompt_token_s;
    EXPECT_NEAR(run_full_steps(model, machine, false, 40), 0.4, 0.051) << prompt_token_s;
  }
}

TEST(StepTimePredictor, FollowsAMachineThatGetsBusy) {
  StepTimePredictor model(0.1);
  Machine machine;
  model.observe({.has_decodes = true}, machine.decode_s);
  run_full_steps(model, machine, true, 40);
  machine = {.decode_s = 0.015, .prompt_token_s = 0.003};
  EXPECT_NEAR(run_full_steps(model, machine, true, 20), 0.1, 0.015);
  machine = {};
  EXPECT_NEAR(run_full_steps(model, machine, true, 40), 0.1, 0.015);
}

TEST(StepTimePredictor, GivesAStepAtLeastTwiceTheTimeOfItsDecodes) {
  const Machine machine{.decode_s = 0.4, .prompt_token_s = 0.01};
  StepTimePredictor model(0.1);
  model.observe({.has_decodes = true}, machine.decode_s);
  EXPECT_NEAR(run_full_steps(model, machine, true, 40), 0.8, 0.051);
}

TEST(StepTimePredictor, KeepsChunksLargeEnoughForTheirCost) {
  const Machine machine{.decode_s = 0.01, .prompt_token_s = 10.0};
  StepTimePredictor model(0.1);
  run_full_steps(model, machine, true, 40);
  EXPECT_EQ(model.limits(), (PrefillLimits{.beside_decodes = 16, .without_decodes = 64}));
}

TEST(StepTimePredictor, ChangesLimitsRarely) {
  Random random(7);
  StepTimePredictor model(0.1);
  Machine machine;
  run_full_steps(model, machine, true, 40);
  int num_changes = 0;
  PrefillLimits last = model.limits();
  for (int i = 0; i < 1000; ++i) {
    const StepWork work{.num_prompt_tokens = last.beside_decodes, .has_decodes = true};
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
  model.observe({.has_decodes = true}, machine.decode_s);
  model.observe({.num_prompt_tokens = 100}, machine.run({.num_prompt_tokens = 100}));
  for (const StepWork& work : {StepWork{.num_prompt_tokens = 50, .has_decodes = true}, StepWork{.has_decodes = true}})
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

}  // namespace
}  // namespace quire::test
