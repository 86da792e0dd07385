// Tests the guarantees of the scheduler one by one.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>

#include "core/schedule/harness.h"
#include "core/schedule/naive_kv.h"
#include "quire/base/events.h"

namespace quire::test {
namespace {

std::vector<TokenId> tokens(std::size_t count, TokenId first = 10) {
  std::vector<TokenId> result(count);
  std::iota(result.begin(), result.end(), first);
  return result;
}

TEST(Scheduler, PrefillsInOneStepThenDecodes) {
  Harness h(small_config());
  h.add(1, tokens(10), 3);
  const StepPlan& first = h.plan();
  ASSERT_EQ(first.admitted.size(), 1U);
  EXPECT_EQ(first.admitted[0].tokens.size(), 10U);
  EXPECT_EQ(first.admitted[0].num_prompt_tokens, 10U);
  ASSERT_EQ(first.scheduled.size(), 1U);
  EXPECT_EQ(first.scheduled[0].num_tokens, 10U);
  EXPECT_TRUE(first.scheduled[0].samples);
  ASSERT_EQ(first.table_deltas.size(), 1U);
  EXPECT_EQ(first.table_deltas[0].update, TableUpdate::replace_all);
  EXPECT_EQ(first.table_deltas[0].blocks.size(), 3U);
  const StepOutcome& outcome = h.apply_oldest();
  ASSERT_EQ(outcome.updates.size(), 1U);
  EXPECT_EQ(outcome.updates[0].tokens.size(), 1U);
  ASSERT_EQ(outcome.first_admissions.size(), 1U);

  const StepPlan& second = h.plan();
  EXPECT_TRUE(second.admitted.empty());
  EXPECT_TRUE(second.table_deltas.empty()) << "the third block has room";
  EXPECT_EQ(second.scheduled[0].num_computed_tokens, 10U);
  EXPECT_EQ(second.scheduled[0].num_tokens, 1U);
  h.apply_oldest();
  const StepOutcome& last = h.step();
  ASSERT_EQ(last.updates.size(), 1U);
  EXPECT_TRUE(last.updates[0].finished);
  EXPECT_EQ(last.updates[0].reason, FinishReason::length);
  EXPECT_EQ(last.retired.size(), 1U);
  EXPECT_FALSE(h.core->has_work());
  EXPECT_EQ(h.plan().released.size(), 1U) << "the worker is notified in the next plan";
  h.apply_oldest();
  EXPECT_TRUE(h.core->all_blocks_free());
}

TEST(Scheduler, DecodesFirstAndFillsTheBudgetWithPrefillChunks) {
  CoreConfig config = small_config();
  config.scheduler.max_num_batched_tokens = 10;
  Harness h(config);
  h.add(1, tokens(6), 20);
  h.add(2, tokens(15, 100), 20);
  const StepPlan& first = h.plan();
  ASSERT_EQ(first.scheduled.size(), 2U);
  EXPECT_EQ(first.scheduled[1].num_tokens, 4U);
  EXPECT_FALSE(first.scheduled[1].samples);
  EXPECT_EQ(h.apply_oldest().updates.size(), 1U) << "a chunk samples nothing";
  const StepPlan& second = h.plan();
  EXPECT_EQ(second.scheduled[0].num_tokens, 1U);
  EXPECT_EQ(second.scheduled[1].num_computed_tokens, 4U);
  EXPECT_EQ(second.scheduled[1].num_tokens, 9U);
  ASSERT_EQ(second.table_deltas.size(), 1U) << "the first request's second block has room";
  EXPECT_EQ(second.table_deltas[0].update, TableUpdate::append);
  EXPECT_EQ(second.table_deltas[0].blocks.size(), 3U);
  h.apply_oldest();
  h.run_to_end();
}

TEST(Scheduler, SharesBlocksOfHitsInTheSameStep) {
  Harness h(small_config());
  h.add(1, tokens(9), 2);
  h.add(2, tokens(9), 2);
  const StepPlan& plan = h.plan();
  ASSERT_EQ(plan.scheduled.size(), 2U);
  EXPECT_EQ(plan.scheduled[1].num_computed_tokens, 8U);
  EXPECT_EQ(plan.table_deltas[0].blocks[0], plan.table_deltas[1].blocks[0]);
  EXPECT_EQ(plan.table_deltas[0].blocks[1], plan.table_deltas[1].blocks[1]);
  const StepOutcome& outcome = h.apply_oldest();
  EXPECT_EQ(outcome.first_admissions[0].num_cached_tokens, 0U);
  EXPECT_EQ(outcome.first_admissions[1].num_cached_tokens, 8U);
  EXPECT_EQ(outcome.updates[1].num_cached_tokens, 8U);
  EXPECT_EQ(h.core->counters().prefix_query_tokens, 18U);
  EXPECT_EQ(h.core->counters().prefix_hit_tokens, 8U);
  h.run_to_end();
}

TEST(Scheduler, PlansTheWorkedExample) {
  CoreConfig config = small_config(11);
  config.scheduler.max_num_batched_tokens = 64;
  config.scheduler.max_model_len = 40;
  Harness h(config);
  h.add(0, tokens(15), 25);
  h.step();
  h.step();
  h.step();
  EXPECT_EQ(values(h.worker.table(Slot{0})), (std::vector<std::uint32_t>{1, 2, 3, 4, 5}));
  auto prompt = tokens(10);
  prompt.insert(prompt.end(), {70, 71, 72, 73});
  h.add(1, prompt, 2);
  h.step();
  EXPECT_EQ(values(h.worker.table(Slot{1})), (std::vector<std::uint32_t>{1, 2, 6, 7}));
  h.finish(RequestId{0});
  h.finish(RequestId{1});
  prompt = tokens(12);
  const auto rest = tokens(17, 200);
  prompt.insert(prompt.end(), rest.begin(), rest.end());
  h.add(2, prompt, 2);
  const StepPlan& plan = h.plan();
  EXPECT_EQ(plan.released.size(), 2U);
  EXPECT_EQ(values(plan.table_deltas[0].blocks), (std::vector<std::uint32_t>{1, 2, 3, 8, 9, 10, 5, 4}));
  EXPECT_EQ(plan.scheduled[0].num_computed_tokens, 12U);
  h.apply_oldest();
  h.run_to_end();
}

class Recorder : public EventSink {
 public:
  void on_event(const Event& e) override {
    if (e.what == EventKind::preempted)
      log.push_back(fmt::format("{} preempted for {}, {} missing", e.owner.value, e.beneficiary.value, e.amount));
    else if (e.what == EventKind::admission_blocked)
      log.push_back(fmt::format("{} blocked, {} missing", e.owner.value, e.amount));
    else if (e.what == EventKind::prefix_looked_up)
      log.push_back(fmt::format("{} found {} of {}", e.owner.value, e.amount, e.total));
  }
  std::vector<std::string> log;
};

TEST(Scheduler, PreemptsTheNewestRequestAndResumesItFirst) {
  Recorder events;
  Harness h(small_config(5), {.events = &events});
  h.add(1, tokens(8), 8);
  h.add(2, tokens(7, 100), 8);
  h.add(3, tokens(3, 200), 2);
  h.step();  // both are admitted with two blocks each
  EXPECT_EQ(h.core->counters().num_running, 2U);
  const StepPlan& plan = h.plan();
  ASSERT_EQ(plan.scheduled.size(), 1U) << "request 1 needs a third block, so request 2 is preempted and no request replaces it";
  EXPECT_EQ(plan.scheduled[0].id, RequestId{1});
  EXPECT_EQ(plan.released.size(), 1U);
  const StepOutcome& outcome = h.apply_oldest();
  ASSERT_EQ(outcome.preempted.size(), 1U);
  EXPECT_EQ(outcome.preempted[0], RequestId{2});
  EXPECT_EQ(events.log, (std::vector<std::string>{"1 found 0 of 8", "2 found 0 of 7", "3 found 0 of 3", "3 blocked, 1 missing",
                                                  "2 preempted for 1, 1 missing"}));
  h.step();
  EXPECT_EQ(h.core->counters().num_running, 1U);
  EXPECT_EQ(events.log.back(), "2 blocked, 1 missing") << "the preempted request is tried before the third";
  h.run_to_end();
  EXPECT_GE(h.core->counters().num_preemptions, 1U);
}

TEST(Scheduler, SendsAllTokensOfAResumedRequest) {
  Harness h(small_config(5));
  h.add(1, tokens(8), 8);
  h.add(2, tokens(7, 100), 8);
  h.step();
  h.step();
  while (h.core->counters().num_running == 1 && h.alive.contains(RequestId{1})) h.step();
  const StepPlan& plan = h.plan();
  ASSERT_EQ(plan.admitted.size(), 1U);
  EXPECT_EQ(plan.admitted[0].id, RequestId{2});
  EXPECT_EQ(plan.admitted[0].num_prompt_tokens, 7U);
  EXPECT_GT(plan.admitted[0].tokens.size(), 7U);
  EXPECT_EQ(plan.table_deltas[0].update, TableUpdate::replace_all);
  EXPECT_TRUE(h.apply_oldest().first_admissions.empty());
  h.run_to_end();
}

TEST(Scheduler, StopsInTheOrderMinTokensEosStopIdsLength) {
  struct Case {
    std::uint32_t min_tokens;
    bool ignore_eos;
    std::vector<TokenId> sampled;
    std::size_t num_outputs;
    FinishReason reason;
    TokenId stop_token;
  };
  const std::vector<Case> cases{
      {0, false, {5, 0, 6, 7}, 2, FinishReason::stop, -1}, {0, true, {5, 0, 6, 7}, 4, FinishReason::length, -1},
      {0, false, {5, 1, 6, 7}, 2, FinishReason::stop, 1},  {0, true, {5, 1, 6, 7}, 2, FinishReason::stop, 1},
      {3, false, {0, 1, 6, 0}, 4, FinishReason::stop, -1}, {2, false, {0, 1, 6, 7}, 2, FinishReason::stop, 1},
      {4, false, {0, 1, 0, 1}, 4, FinishReason::stop, 1},  {0, false, {5, 6, 7, 8}, 4, FinishReason::length, -1},
  };
  for (const Case& c : cases) {
    auto core = Core::create(small_config()).value();
    const auto prompt = tokens(3);
    NewRequest request{.id = RequestId{1}, .prompt = prompt, .max_tokens = 4, .min_tokens = c.min_tokens, .stop_token_ids = kStopTokens};
    if (!c.ignore_eos) request.eos_ids = kEosTokens;
    ASSERT_TRUE(core->add(request));
    for (std::size_t i = 0; i < c.num_outputs; ++i) {
      const SampledToken token{RequestId{1}, c.sampled[i]};
      const StepOutcome& outcome = **core->apply({core->schedule().step, {&token, 1}});
      ASSERT_EQ(outcome.updates.size(), 1U);
      EXPECT_EQ(outcome.updates[0].tokens[0], c.sampled[i]);
      ASSERT_EQ(outcome.updates[0].finished, i + 1 == c.num_outputs);
      if (outcome.updates[0].finished) {
        EXPECT_EQ(outcome.updates[0].reason, c.reason);
        EXPECT_EQ(outcome.updates[0].stop_token, c.stop_token < 0 ? std::nullopt : std::optional(c.stop_token))
            << "only stop ids report a stop token";
      }
    }
  }
}

TEST(Scheduler, EndsOutputAtTheModelsLength) {
  CoreConfig config = small_config();
  config.scheduler.max_model_len = 12;
  Harness h(config);
  h.add(1, tokens(9), 1000);
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(h.step().updates[0].finished);
  const StepOutcome& outcome = h.step();
  EXPECT_TRUE(outcome.updates[0].finished);
  EXPECT_EQ(outcome.updates[0].reason, FinishReason::length);
}

TEST(Scheduler, ReleasesASlotBeforeReusingIt) {
  CoreConfig config = small_config();
  config.scheduler.max_num_seqs = 1;
  Harness h(config);
  h.add(1, tokens(4), 1);
  h.add(2, tokens(4, 100), 1);
  h.step();
  const StepPlan& plan = h.plan();
  ASSERT_EQ(plan.released.size(), 1U);
  ASSERT_EQ(plan.admitted.size(), 1U);
  EXPECT_EQ(plan.released[0], plan.admitted[0].slot);
  h.apply_oldest();
  h.run_to_end();
}

TEST(Scheduler, RunsReadyRequestsInASecondPlanBeforeTheFirstResult) {
  CoreConfig config = small_config();
  config.scheduler.max_num_batched_tokens = 8;
  Harness h(config);
  h.add(1, tokens(4), 3);
  h.add(2, tokens(10, 100), 3);
  EXPECT_EQ(h.plan().scheduled.size(), 2U);
  const StepPlan& second = h.plan();
  ASSERT_EQ(second.scheduled.size(), 1U) << "the token of request 1 is not known yet, but the prompt of request 2 is";
  EXPECT_EQ(second.scheduled[0].id, RequestId{2});
  EXPECT_EQ(h.core->num_outstanding_plans(), 2U);
  h.apply_oldest();
  h.apply_oldest();
  h.run_to_end();
}

TEST(Scheduler, ResetsThePrefixCacheOnlyWhenNoRequestHoldsBlocks) {
  Harness h(small_config());
  h.add(1, tokens(9), 1);
  h.plan();
  EXPECT_FALSE(h.core->reset_prefix_cache().value());
  h.apply_oldest();
  EXPECT_TRUE(h.core->reset_prefix_cache().value());
  h.add(2, tokens(9), 1);
  EXPECT_EQ(h.step().first_admissions[0].num_cached_tokens, 0U);
}

}  // namespace
}  // namespace quire::test
