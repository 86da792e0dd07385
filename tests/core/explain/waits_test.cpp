// What an explainer says of requests that wait: each cause, once.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/explain/explained.h"
#include "core/schedule/named_tier.h"

namespace quire {
namespace {

using test::CoreDriver;
using test::Explained;
using test::NamedTier;
using test::sync_config;
using test::Tokens;

TEST(ExplainerWaits, WhoIsPassedOverWaitsForACauseOfItsOwn) {
  CoreConfig config = sync_config();
  config.limits.max_loras = 1;
  Explained e(config);
  for (std::uint64_t id = 1; id <= 3; ++id) {
    const Tokens prompt = CoreDriver::prompt(id, 6);
    NewRequest request = CoreDriver::request(id, prompt, 8);
    request.lora_id = id < 3 ? static_cast<std::int64_t>(id) : 0;
    if (id < 3) request.lora_name = "adapter";
    e.driver.add(request);
  }
  for (int i = 0; i < 2; ++i) e.driver.step();
  e.driver.plan();
  const std::vector<WaitFact> waits = e.of(2).waits;
  ASSERT_EQ(waits.size(), 2U) << "of what holds the others back it has nothing but the time before the first step";
  const auto found = std::ranges::find(waits, EventCause::adapter, &WaitFact::cause);
  ASSERT_NE(found, waits.end());
  EXPECT_EQ(found->seconds, 4.0);
  EXPECT_EQ(found->num_steps, 2U);
  EXPECT_EQ(Explained::seconds(waits, EventCause::none), 1.0);
  EXPECT_EQ(e.of(3).waits.size(), 1U);
}

// What passed it over in one step says nothing of the next one.
TEST(ExplainerWaits, WhoWasPassedOverOnceWaitsForWhatHoldsAllFromThenOn) {
  CoreConfig config = sync_config();
  config.limits.max_loras = 1;
  config.scheduler.max_num_seqs = 2;
  Explained e(config);
  e.driver.step();
  for (const std::uint64_t id : {1U, 2U}) {
    const Tokens prompt = CoreDriver::prompt(id, 6);
    NewRequest request = CoreDriver::request(id, prompt, id == 1 ? 2 : 8);
    request.lora_id = static_cast<std::int64_t>(id);
    request.lora_name = "adapter";
    e.driver.add(request);
  }
  e.driver.now += 0.5;
  e.driver.step();  // 2 is passed over, for the adapter of 1
  e.driver.add(4, 5, 9);
  e.driver.core->set_pause_state(PauseState::paused_new);
  for (int i = 0; i < 3; ++i) e.driver.step();
  e.driver.core->set_pause_state(PauseState::unpaused);
  e.driver.plan();
  const std::vector<WaitFact> waits = e.of(2).waits;
  EXPECT_EQ(Explained::seconds(waits, EventCause::adapter), 2.0);
  EXPECT_EQ(std::ranges::find(waits, EventCause::adapter, &WaitFact::cause)->num_steps, 1U);
  EXPECT_EQ(Explained::seconds(waits, EventCause::paused), 6.0);
  EXPECT_EQ(std::ranges::find(waits, EventCause::none, &WaitFact::cause)->num_steps, 0U) << "each step had a cause";
  EXPECT_TRUE(std::ranges::is_sorted(waits, std::ranges::greater{}, &WaitFact::seconds)) << "the longest first";
}

TEST(ExplainerWaits, WhoComesInAPauseWaitsForItsEnd) {
  Explained e(sync_config());
  e.driver.step();  // 1, 2
  e.driver.core->set_pause_state(PauseState::paused_all);
  e.driver.add(1, 4, 1);  // at 2
  e.driver.now = 5.0;
  const std::vector<WaitFact> waits = e.of(1).waits;
  ASSERT_EQ(waits.size(), 1U);
  EXPECT_EQ(waits[0].cause, EventCause::paused);
  EXPECT_EQ(waits[0].seconds, 3.0);
  EXPECT_EQ(waits[0].num_steps, 0U) << "no step has begun since";
}

// And who runs waits no more, whatever holds others back meanwhile.
TEST(ExplainerWaits, WhatAllWaitedForIsTheSumOfWhatEachDid) {
  CoreConfig config = sync_config();
  config.scheduler.max_num_seqs = 1;
  Explained e(config);
  e.driver.add(1, 4, 4);
  e.driver.add(2, 4, 1);
  e.driver.add(3, 4, 1);
  ExplainTotals sums;
  for (int i = 0; i < 7; ++i) e.driver.step();
  for (const std::uint64_t id : {1U, 2U, 3U}) {
    const RequestExplanation facts = e.of(id);
    ASSERT_TRUE(facts.ended_s.has_value());
    EXPECT_TRUE(facts.later_waits.empty());
    double waited_s = 0.0;
    for (const WaitFact& wait : facts.waits) {
      sums.waited_s.at(static_cast<std::size_t>(wait.cause)) += wait.seconds;
      waited_s += wait.seconds;
    }
    EXPECT_EQ(waited_s, *facts.admitted_s - facts.queued_s);
    for (std::size_t i = 0; i < kNumMissCauses; ++i) sums.missed_tokens.at(i) += facts.missed.at(i);
  }
  EXPECT_EQ(e.explainer.totals().waited_s, sums.waited_s);
  EXPECT_EQ(e.explainer.totals().missed_tokens, sums.missed_tokens);
  EXPECT_GT(sums.waited_s.at(static_cast<std::size_t>(EventCause::no_slot)), 0.0);
  EXPECT_EQ(sums.missed_tokens.at(static_cast<std::size_t>(MissCause::never_stored)), 12U);
}

TEST(ExplainerWaits, WhoComesWhileTheBatchIsFullWaitsForASlotBehindNobody) {
  CoreConfig config = sync_config();
  config.scheduler.max_num_seqs = 1;
  Explained e(config);
  e.driver.add(1, 4, 2);
  e.driver.step();        // plan at 1, result at 2
  e.driver.add(2, 4, 1);  // at 2
  e.driver.step();        // planned at 3, and over at 4
  e.driver.step();        // 2 is admitted at 5
  const RequestExplanation facts = e.of(2);
  EXPECT_EQ(facts.admitted_s, 5.0);
  EXPECT_EQ(Explained::seconds(facts.waits, EventCause::none), 1.0);
  EXPECT_EQ(Explained::seconds(facts.waits, EventCause::no_slot), 2.0);
  ASSERT_EQ(facts.waits.size(), 2U);
  EXPECT_EQ(facts.waits[0].cause, EventCause::no_slot);
  EXPECT_EQ(facts.waits[0].num_steps, 1U);
  EXPECT_EQ(facts.waits[1].num_steps, 0U) << "until a step began";
  EXPECT_EQ(facts.behind, RequestId{});
}

TEST(ExplainerWaits, ALongPromptHoldsBackThoseBehindItForTokens) {
  CoreConfig config = sync_config();
  config.scheduler.max_num_batched_tokens = 16;
  Explained e(config);
  e.driver.add(1, 16, 4);
  e.driver.add(2, 4, 1);
  e.driver.plan();  // at 1: 1 takes all tokens
  e.driver.apply();
  EXPECT_EQ(Explained::seconds(e.of(2).waits, EventCause::none), 1.0);
  e.driver.plan();  // at 3: 2 is admitted
  EXPECT_EQ(Explained::seconds(e.of(2).waits, EventCause::no_tokens), 2.0);
}

TEST(ExplainerWaits, WhoLacksBlocksIsNamedAsTheOneInFront) {
  CoreConfig config = sync_config(9);  // 8 blocks of 4 tokens
  Explained e(config);
  e.driver.add(1, 20, 8);  // 5 blocks, 7 in the end
  e.driver.step();         // 1, 2
  e.driver.add(2, 16, 1);  // 4 blocks
  e.driver.add(3, 4, 1);   // 1 block: there would be room
  e.driver.step();         // 3, 4
  e.driver.step();         // 5, 6
  const RequestExplanation second = e.of(2), third = e.of(3);
  EXPECT_EQ(Explained::seconds(second.waits, EventCause::lack_of_blocks), 3.0);
  EXPECT_EQ(Explained::seconds(third.waits, EventCause::lack_of_blocks), 3.0);
  EXPECT_EQ(third.behind, RequestId{2});
  for (int i = 0; i < 20 && !e.of(3).admitted_s.has_value(); ++i) e.driver.step();
  ASSERT_TRUE(e.of(3).admitted_s.has_value());
  EXPECT_EQ(e.of(3).behind, RequestId{2}) << "who was in front is known when it has been admitted, too";
}

TEST(ExplainerWaits, WhoseBlocksAreOnTheirWayWaitsForThemFromTheStepThatAskedOn) {
  NamedTier tier;
  tier.tokens[1] = 8;
  CoreConfig config = sync_config();
  config.kv_load_failure = KvLoadFailurePolicy::recompute;
  Explained e(config, {.connector = &tier});
  e.driver.add(1, 8, 1);
  e.driver.plan();
  EXPECT_EQ(e.explainer.waits_for(RequestId{1}), EventCause::loading) << "though nothing passed it over yet";
  e.driver.apply({});
  e.driver.step();
  e.driver.plan();
  e.driver.apply({}, {.completions = tier.begun});
  e.driver.plan();
  const RequestExplanation facts = e.of(1);
  ASSERT_TRUE(facts.admitted_s.has_value());
  EXPECT_EQ(Explained::seconds(facts.waits, EventCause::loading), *facts.admitted_s - facts.queued_s - 1.0);
  EXPECT_EQ(Explained::seconds(facts.waits, EventCause::none), 1.0) << "before the first step";
  EXPECT_EQ(facts.num_external, 7U);
  EXPECT_EQ(Explained::missed(facts, MissCause::last_token), 1U) << "it came, and is computed to draw the next one";
}

TEST(ExplainerWaits, WhoLacksTheBlocksForWhatItWouldLoadWaitsForBlocks) {
  NamedTier tier;
  tier.tokens[2] = 8;
  CoreConfig config = sync_config(4);
  config.kv_load_failure = KvLoadFailurePolicy::recompute;
  Explained e(config, {.connector = &tier});
  e.driver.add(1, 8, 3);
  e.driver.add(2, 8, 1);
  e.driver.plan();
  EXPECT_EQ(e.explainer.waits_for(RequestId{2}), EventCause::lack_of_blocks);
  e.driver.apply({{1, {40}}});
  e.driver.plan();
  const RequestExplanation facts = e.of(2);
  EXPECT_EQ(Explained::seconds(facts.waits, EventCause::loading), 0.0);
  EXPECT_GT(Explained::seconds(facts.waits, EventCause::lack_of_blocks), 0.0);
}

TEST(ExplainerWaits, WhoGaveWayBetweenTwoStepsWaitsForTheNextOneFromThenOn) {
  Explained e(sync_config());
  e.driver.add(1, 8, 9);
  e.driver.step();  // 1, 2
  ASSERT_TRUE(e.driver.core->reset_prefix_cache(true, false, {.now = e.driver.now}).value());
  e.driver.plan();  // 3
  const RequestExplanation facts = e.of(1);
  ASSERT_EQ(facts.later_waits.size(), 1U);
  EXPECT_EQ(facts.later_waits[0].cause, EventCause::none);
  EXPECT_EQ(facts.later_waits[0].seconds, 1.0);
  EXPECT_EQ(facts.later_waits[0].num_steps, 0U) << "no step passed it over";
}

TEST(ExplainerWaits, APauseIsACauseEvenWhenNoStepIsMade) {
  Explained e(sync_config());
  e.driver.core->set_pause_state(PauseState::paused_all);
  e.driver.add(1, 4, 1);  // at 0
  e.driver.now = 9.0;
  e.driver.core->set_pause_state(PauseState::unpaused);
  e.driver.plan();  // at 10
  EXPECT_EQ(Explained::seconds(e.of(1).waits, EventCause::paused), 10.0);
}

TEST(ExplainerWaits, SaysForWhatOneWaitsNow) {
  CoreConfig config = sync_config();
  config.scheduler.max_num_seqs = 1;
  Explained e(config);
  EXPECT_EQ(e.explainer.waits_for(RequestId{9}), EventCause::none) << "nobody knows it";
  e.driver.core->set_pause_state(PauseState::paused_all);
  e.driver.add(1, 5, 9);
  e.driver.step();
  EXPECT_EQ(e.explainer.waits_for(RequestId{1}), EventCause::paused);
  e.driver.core->set_pause_state(PauseState::unpaused);
  e.driver.step();
  EXPECT_EQ(e.explainer.waits_for(RequestId{1}), EventCause::none) << "it runs";
  e.driver.add(2, 5, 9);
  EXPECT_EQ(e.explainer.waits_for(RequestId{2}), EventCause::none) << "for the next step";
  e.driver.step();
  e.driver.step();
  const RequestExplanation facts = e.of(2);
  const EventCause cause = e.explainer.waits_for(RequestId{2});
  EXPECT_NE(cause, EventCause::none);
  EXPECT_GT(Explained::seconds(facts.waits, cause), 0.0);
}

}  // namespace
}  // namespace quire
