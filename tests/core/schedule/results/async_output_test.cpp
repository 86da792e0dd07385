// Tests outputs when the next plan is made before the result arrives: placeholders, late tokens, and when blocks may be cached.
#include "core/schedule/core_driver.h"

namespace quire::test {
namespace {

TEST(AsyncOutput, PlaceholdersStandForTokensInFlight) {
  CoreDriver d(async_config());
  d.add(1, 3, 9);
  d.plan();
  EXPECT_EQ(d.view(1).num_output_placeholders, 1);
  d.plan();
  EXPECT_EQ(d.view(1).num_output_placeholders, 2);
  EXPECT_EQ(d.view(1).num_computed_tokens, 4U);
  d.apply({{1, {30}}});
  EXPECT_EQ(d.view(1).num_output_placeholders, 1);
  d.apply({{1, {31}}});
  EXPECT_EQ(d.view(1).num_output_placeholders, 0);
  EXPECT_EQ(d.outputs(1), (Tokens{30, 31}));
}

TEST(AsyncOutput, DropsTheTokenPlannedAfterAStop) {
  CoreDriver d(async_config());
  d.add(1, 3, 9);
  d.plan();
  d.plan();
  const Outcome stop = d.apply({{1, {kEos}}});
  EXPECT_TRUE(stop.updates.at(0).finished);
  EXPECT_TRUE(stop.retired.empty()) << "a plan still refers to the request";
  const Outcome late = d.apply({{1, {31}}});
  EXPECT_TRUE(late.updates.empty());
  EXPECT_EQ(late.retired, std::vector<std::uint64_t>{1});
}

// Two requests of 4 tokens share 3 blocks. The second is preempted when the first needs its second block.
CoreDriver preempted_in_flight(CoreConfig config = async_config(4)) {
  CoreDriver d(config);
  d.add(1, 3, 6);
  d.add(2, 4, 6);
  d.plan();
  d.plan();  // request 1 runs token 4, request 2 runs token 5 in its second block
  d.apply({{1, {10}}, {2, {20}}});
  d.plan();  // request 1 needs a second block: request 2 is preempted with a token in flight
  return d;
}

TEST(AsyncOutput, Trap21AppendsALateTokenOfAPreemptedRequestWithoutCaching) {
  CoreDriver d = preempted_in_flight();
  ASSERT_EQ(d.view(2).status, RequestStatus::preempted);
  EXPECT_EQ(d.view(2).num_output_placeholders, 1) << "a preemption keeps placeholders";
  const Outcome outcome = d.apply({{1, {11}}, {2, {21}}});
  ASSERT_EQ(outcome.updates.size(), 2U);
  EXPECT_EQ(outcome.updates[1].tokens, Tokens{21});
  EXPECT_EQ(d.outputs(2), (Tokens{20, 21}));
  EXPECT_EQ(d.view(2).num_output_placeholders, 0);
  EXPECT_EQ(d.view(2).status, RequestStatus::preempted);
  EXPECT_TRUE(d.blocks(2).empty());
  EXPECT_EQ(values(d.snapshot().waiting), std::vector<std::uint64_t>{2});
}

TEST(AsyncOutput, Trap21RemovesAPreemptedRequestThatALateTokenStopsFromTheQueue) {
  CoreDriver d = preempted_in_flight();
  const Outcome outcome = d.apply({{1, {11}}, {2, {kEos}}});
  EXPECT_TRUE(outcome.updates.at(1).finished);
  EXPECT_EQ(outcome.retired, std::vector<std::uint64_t>{2});
  EXPECT_TRUE(d.snapshot().waiting.empty());
  EXPECT_EQ(values(d.snapshot().running), std::vector<std::uint64_t>{1});
}

TEST(AsyncOutput, ReportsRequestsPreemptedByThePlanInItsOutcome) {
  CoreDriver d = preempted_in_flight();
  EXPECT_TRUE(d.apply().preempted.empty());
  EXPECT_EQ(d.apply().preempted, std::vector<std::uint64_t>{2});
}

TEST(AsyncOutput, Trap21DiscardsOneTokenInFlightAfterAForcedPreemption) {
  CoreDriver d(async_config());
  d.add(1, 3, 9);
  d.plan();
  d.apply({{1, {30}}});
  d.plan();
  ASSERT_TRUE(d.core->reset_prefix_cache(true).value());
  EXPECT_TRUE(d.view(1).discard_latest_async_tokens);
  EXPECT_EQ(d.view(1).num_output_placeholders, 0);
  const Outcome outcome = d.apply({{1, {31}}});
  EXPECT_TRUE(outcome.updates.empty());
  EXPECT_EQ(d.outputs(1), Tokens{30});
  EXPECT_FALSE(d.view(1).discard_latest_async_tokens);
  EXPECT_EQ(d.step({{1, {31}}}).updates.at(0).tokens, Tokens{31});
}

TEST(AsyncOutput, KeepsFurtherTokensInFlightAfterAForcedPreemption) {
  CoreDriver d(async_config());
  d.add(1, 3, 9);
  d.plan();
  d.plan();
  ASSERT_TRUE(d.core->reset_prefix_cache(true).value());
  EXPECT_TRUE(d.apply({{1, {30}}}).updates.empty());
  EXPECT_EQ(d.apply({{1, {31}}}).updates.at(0).tokens, Tokens{31});
  EXPECT_EQ(d.view(1).num_output_placeholders, 0);
  d.step();
}

TEST(AsyncOutput, Trap29CachesABlockOnceItsLastTokenHasRun) {
  CoreDriver d(async_config());
  d.add(1, 3, 9);
  d.plan();
  d.plan();  // runs the token that fills the block and is not known yet
  ASSERT_EQ(d.blocks(1).size(), 1U);
  const BlockId block = d.blocks(1)[0];
  EXPECT_FALSE(d.cached(block));
  d.apply();
  EXPECT_FALSE(d.cached(block)) << "computed - placeholders = 3";
  d.apply();
  EXPECT_TRUE(d.cached(block));
}

TEST(AsyncOutput, CachesWhenItPlansWithSynchronousScheduling) {
  CoreDriver d(sync_config());
  d.add(1, 3, 9);
  d.step();
  d.plan();
  EXPECT_TRUE(d.cached(d.blocks(1).at(0)));
  d.apply();
}

// Preempts a request by a reset while none of its tokens is in flight, and runs the following steps.
CoreDriver reset_between_steps(bool discard_only_in_flight) {
  CoreConfig config = async_config();
  config.fixes.discard_only_in_flight = discard_only_in_flight;
  CoreDriver d(config);
  d.add(1, 3, 3);
  d.step({{1, {30}}});
  EXPECT_EQ(d.view(1).num_output_placeholders, 0);
  EXPECT_TRUE(d.core->reset_prefix_cache(true).value());
  for (TokenId token = 31; token < 40 && d.known(1); ++token) {
    const bool samples = d.plan().scheduled.size() == 1;
    d.apply({{1, Tokens(samples ? 1 : 0, token)}});
  }
  return d;
}

TEST(AsyncOutput, FinishesARequestResetBetweenStepsWhenOnlyTokensInFlightAreDiscarded) {
  EXPECT_FALSE(reset_between_steps(true).known(1));
}

// vLLM drops the token but keeps its placeholder. It then treats the last token as one in flight.
TEST(AsyncOutput, Trap21ARequestResetBetweenStepsKeepsAPlaceholderForever) {
  CoreDriver d = reset_between_steps(false);
  ASSERT_TRUE(d.known(1));
  EXPECT_EQ(d.core->num_outstanding_plans(), 0U);
  EXPECT_EQ(d.view(1).status, RequestStatus::running);
  EXPECT_EQ(d.view(1).num_output_placeholders, 1);
  EXPECT_EQ(d.outputs(1).size(), 2U);
  d.plan();
  EXPECT_EQ(d.scheduled(1), 0U);
}

}  // namespace
}  // namespace quire::test
