// Tests explanations of waiting requests: each cause once.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/explain/explained.h"
#include "core/schedule/named_tier.h"

namespace quire::test {
namespace {

TEST(ExplainerWaits, ReportsASeparateCauseForASkippedRequest) {
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
  ASSERT_EQ(waits.size(), 2U) << "it shares only the time before the first step with the other requests";
  const auto found = std::ranges::find(waits, EventCause::adapter, &WaitFact::cause);
  ASSERT_NE(found, waits.end());
  EXPECT_EQ(found->seconds, 4.0);
  EXPECT_EQ(found->num_steps, 2U);
  EXPECT_EQ(Explained::seconds(waits, EventCause::none), 1.0);
  EXPECT_EQ(e.of(3).waits.size(), 1U);
}

// A cause that skipped the request in one step does not count for the next step.
TEST(ExplainerWaits, ReportsTheCommonCauseAfterARequestWasSkippedOnce) {
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
  e.driver.step();  // 2 is skipped since the adapter of 1 is in use
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
  EXPECT_TRUE(std::ranges::is_sorted(waits, std::ranges::greater{}, &WaitFact::seconds)) << "the longest wait is first";
}

TEST(ExplainerWaits, ReportsAPauseForARequestThatArrivesDuringIt) {
  Explained e(sync_config());
  e.driver.step();  // 1, 2
  e.driver.core->set_pause_state(PauseState::paused_all);
  e.driver.add(1, 4, 1);  // at 2
  e.driver.now = 5.0;
  const std::vector<WaitFact> waits = e.of(1).waits;
  ASSERT_EQ(waits.size(), 1U);
  EXPECT_EQ(waits[0].cause, EventCause::paused);
  EXPECT_EQ(waits[0].seconds, 3.0);
  EXPECT_EQ(waits[0].num_steps, 0U) << "no step has begun since then";
}

// A running request has no waits, even if other requests are held back.
TEST(ExplainerWaits, TotalsAreTheSumsOverAllRequests) {
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

TEST(ExplainerWaits, ReportsNoSlotAndNoBlockingRequestWhenTheBatchIsFull) {
  CoreConfig config = sync_config();
  config.scheduler.max_num_seqs = 1;
  Explained e(config);
  e.driver.add(1, 4, 2);
  e.driver.step();        // plan at 1, result at 2
  e.driver.add(2, 4, 1);  // at 2
  e.driver.step();        // plan at 3, result at 4
  e.driver.step();        // 2 is admitted at 5
  const RequestExplanation facts = e.of(2);
  EXPECT_EQ(facts.admitted_s, 5.0);
  EXPECT_EQ(Explained::seconds(facts.waits, EventCause::none), 1.0);
  EXPECT_EQ(Explained::seconds(facts.waits, EventCause::no_slot), 2.0);
  ASSERT_EQ(facts.waits.size(), 2U);
  EXPECT_EQ(facts.waits[0].cause, EventCause::no_slot);
  EXPECT_EQ(facts.waits[0].num_steps, 1U);
  EXPECT_EQ(facts.waits[1].num_steps, 0U) << "the time until a step began";
  EXPECT_EQ(facts.blocked_by, RequestId{});
}

TEST(ExplainerWaits, ReportsNoTokensWhileALongPromptUsesTheTokenBudget) {
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

TEST(ExplainerWaits, NamesTheRequestInFrontThatWaitsForBlocks) {
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
  EXPECT_EQ(third.blocked_by, RequestId{2});
  for (int i = 0; i < 20 && !e.of(3).admitted_s.has_value(); ++i) e.driver.step();
  ASSERT_TRUE(e.of(3).admitted_s.has_value());
  EXPECT_EQ(e.of(3).blocked_by, RequestId{2}) << "the request in front is still known after the admission";
}

TEST(ExplainerWaits, NamesNoRequestInFrontOfOneThatIsAdmittedImmediately) {
  CoreConfig config = sync_config(9);  // 8 blocks of 4 tokens
  Explained e(config);
  e.driver.add(1, 20, 8);
  e.driver.step();
  e.driver.add(2, 16, 1);
  e.driver.add(3, 4, 1);
  for (int i = 0; i < 20 && e.driver.core->has_work(); ++i) e.driver.step();
  ASSERT_EQ(e.of(3).blocked_by, RequestId{2}) << "the queue was blocked once";
  e.driver.add(4, 4, 1);
  EXPECT_EQ(e.of(4).blocked_by, RequestId{}) << "request 4 waits only for the next step";
  e.driver.step();
  ASSERT_TRUE(e.of(4).admitted_s.has_value());
  EXPECT_EQ(e.of(4).blocked_by, RequestId{}) << "the queue was no longer blocked when it arrived";
}

TEST(ExplainerWaits, NamesNoRequestInFrontOfTheOneAtTheHeadOfTheQueue) {
  Explained e(sync_config(9));
  e.driver.add(1, 20, 8);
  e.driver.step();
  e.driver.add(2, 16, 1);
  e.driver.plan();
  ASSERT_EQ(e.explainer.waits_for(RequestId{2}), EventCause::lack_of_blocks);
  EXPECT_EQ(e.of(2).blocked_by, RequestId{});
}

// Request 2 is skipped because of max_loras, so it keeps no later request from running.
TEST(ExplainerWaits, NamesNoRequestInFrontOfOneThatIsSkipped) {
  CoreConfig config = sync_config();
  config.limits.max_loras = 1;
  config.scheduler.max_num_seqs = 2;
  Explained e(config);
  for (const std::uint64_t id : {1U, 2U, 3U, 4U}) {
    const Tokens prompt = CoreDriver::prompt(id, 6);
    NewRequest request = CoreDriver::request(id, prompt, id == 1 ? 4 : 8);
    request.lora_id = id == 2 ? 2 : 1;
    request.lora_name = id == 2 ? "two" : "one";
    e.driver.add(request);
  }
  for (int i = 0; i < 2; ++i) e.driver.step();  // 1 and 3 fill the batch; 2 is skipped; 4 waits for a slot
  EXPECT_EQ(e.explainer.waits_for(RequestId{4}), EventCause::no_slot);
  EXPECT_EQ(e.of(2).blocked_by, RequestId{});
}

TEST(ExplainerWaits, ReportsLoadingFromTheStepThatBeginsTheLoad) {
  NamedTier tier;
  tier.tokens[1] = 8;
  CoreConfig config = sync_config();
  config.kv_load_failure = KvLoadFailurePolicy::recompute;
  Explained e(config, {.connector = &tier});
  e.driver.add(1, 8, 1);
  e.driver.plan();
  EXPECT_EQ(e.explainer.waits_for(RequestId{1}), EventCause::loading) << "no step has skipped the request yet";
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
  EXPECT_EQ(Explained::missed(facts, MissCause::last_token), 1U) << "the last token is computed again to sample the next one";
}

TEST(ExplainerWaits, ReportsMissingBlocksWhenALoadHasNoFreeBlocks) {
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

TEST(ExplainerWaits, ReportsNoCauseForARequestPreemptedBetweenTwoSteps) {
  Explained e(sync_config());
  e.driver.add(1, 8, 9);
  e.driver.step();  // 1, 2
  ASSERT_TRUE(e.driver.core->reset_prefix_cache(true, false, {.now = e.driver.now}).value());
  e.driver.plan();  // 3
  const RequestExplanation facts = e.of(1);
  ASSERT_EQ(facts.later_waits.size(), 1U);
  EXPECT_EQ(facts.later_waits[0].cause, EventCause::none);
  EXPECT_EQ(facts.later_waits[0].seconds, 1.0);
  EXPECT_EQ(facts.later_waits[0].num_steps, 0U) << "no step skipped the request";
}

TEST(ExplainerWaits, ReportsAPauseWhenNoStepRuns) {
  Explained e(sync_config());
  e.driver.core->set_pause_state(PauseState::paused_all);
  e.driver.add(1, 4, 1);  // at 0
  e.driver.now = 9.0;
  e.driver.core->set_pause_state(PauseState::unpaused);
  e.driver.plan();  // at 10
  EXPECT_EQ(Explained::seconds(e.of(1).waits, EventCause::paused), 10.0);
}

TEST(ExplainerWaits, ReportsTheCurrentCause) {
  CoreConfig config = sync_config();
  config.scheduler.max_num_seqs = 1;
  Explained e(config);
  EXPECT_EQ(e.explainer.waits_for(RequestId{9}), EventCause::none) << "the request is unknown";
  e.driver.core->set_pause_state(PauseState::paused_all);
  e.driver.add(1, 5, 9);
  e.driver.step();
  EXPECT_EQ(e.explainer.waits_for(RequestId{1}), EventCause::paused);
  e.driver.core->set_pause_state(PauseState::unpaused);
  e.driver.step();
  EXPECT_EQ(e.explainer.waits_for(RequestId{1}), EventCause::none) << "request 1 is running";
  e.driver.add(2, 5, 9);
  EXPECT_EQ(e.explainer.waits_for(RequestId{2}), EventCause::none) << "request 2 waits only for the next step";
  e.driver.step();
  e.driver.step();
  const RequestExplanation facts = e.of(2);
  const EventCause cause = e.explainer.waits_for(RequestId{2});
  EXPECT_NE(cause, EventCause::none);
  EXPECT_GT(Explained::seconds(facts.waits, cause), 0.0);
}

}  // namespace
}  // namespace quire::test
