// Tests details of vLLM's planning that a reimplementation easily misses: the running loop, the waiting loop, both policies and the plan.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/schedule/core_driver.h"
#include "quire/base/events.h"
#include "support/scripted_connector.h"

namespace quire::test {
namespace {

TEST(Admission, SendsTheSamplingParametersToTheWorker) {
  CoreDriver d(sync_config());
  const SamplingParams params;
  const Tokens prompt = CoreDriver::prompt(1, 5);
  NewRequest request = CoreDriver::request(1, prompt, 4);
  request.sampling = &params;
  d.add(request);
  const StepPlan& plan = d.plan();
  ASSERT_EQ(plan.admitted.size(), 1U);
  EXPECT_EQ(plan.admitted[0].sampling, &params);
  d.apply();
}

// Slots are also allocated for future draft tokens, but never beyond max_model_len.
TEST(Slots, Trap11ReachTheLookaheadAndEndAtMaxModelLen) {
  CoreConfig config = sync_config();
  config.speculation.num_spec_tokens = config.speculation.num_lookahead_tokens = 4;
  config.speculation.use_eagle = true;
  config.scheduler.max_model_len = 10;
  CoreDriver d(config);
  d.add(1, 4, 6);
  d.step();
  EXPECT_EQ(d.blocks(1).size(), 1U) << "a fresh prefill gets no slots for draft tokens";
  d.step();
  EXPECT_EQ(d.blocks(1).size(), 3U) << "4 computed tokens, 1 new token and 4 slots for draft tokens";
  d.step();
  d.step();
  EXPECT_EQ(d.blocks(1).size(), 3U) << "12 slots would be beyond the 10 tokens of the model";
}

// A request that was promoted with computed tokens gets the lookahead on admission. A request that starts from scratch does not.
TEST(Slots, Trap12LookaheadOnAdmissionDependsOnComputedTokens) {
  CoreConfig config = sync_config();
  config.speculation.num_spec_tokens = config.speculation.num_lookahead_tokens = 4;
  config.speculation.use_eagle = true;
  ScriptedConnector connector;
  connector.matches[RequestId{1}] = {.num_tokens = 4, .load_async = true};
  CoreDriver d(config, {.connector = &connector});
  d.add(1, 8, 6);
  d.step();
  ASSERT_EQ(d.view(1).status, RequestStatus::waiting_for_remote_kv);
  d.plan();
  const RequestId received[] = {RequestId{1}};
  d.apply({}, {.has_connector_output = true, .finished_receiving = received});
  d.step();
  EXPECT_EQ(d.blocks(1).size(), 3U) << "8 tokens and 4 slots for draft tokens";
}

TEST(FullSequence, Trap13MustFitBeforeItsFirstChunkIsAdmitted) {
  for (const bool reserve : {true, false}) {
    CoreConfig config = sync_config(7);
    config.scheduler.max_num_batched_tokens = 8;
    config.scheduler.max_model_len = 24;
    config.scheduler.reserve_full_isl = reserve;
    CoreDriver d(config);
    d.add(1, 4, 4);
    d.step();
    d.add(2, 23, 1);
    d.add(3, 1, 1);
    EXPECT_EQ(scheduled_ids(d.plan()), reserve ? Ids({1}) : Ids({1, 2})) << "request 3 would fit, but request 2 before it does not";
    d.apply();
  }
}

TEST(Running, Trap19SkipsARequestThatHasNoTokensToCompute) {
  CoreConfig config = sync_config(8);
  config.limits.max_outstanding_plans = 2;
  config.scheduler.reserve_full_isl = false;
  config.scheduler.max_num_batched_tokens = 10;
  CoreDriver d(config);
  d.add(1, 4, 8);
  d.add(2, 11, 8);
  d.plan();
  EXPECT_EQ(scheduled_ids(d.plan()), Ids({2})) << "the token of request 1 is not known yet";
}

TEST(Running, Trap19LimitsAChunkByThePrefillThresholdAndTheBudget) {
  CoreConfig config = sync_config();
  config.scheduler.long_prefill_token_threshold = 6;
  config.scheduler.max_num_batched_tokens = 10;
  CoreDriver d(config);
  d.add(1, 20, 4);
  d.add(2, 20, 4);
  const StepPlan& first = d.plan();
  EXPECT_EQ(first.scheduled[0].num_tokens, 6U);
  EXPECT_EQ(first.scheduled[1].num_tokens, 4U);
  d.apply();
  const StepPlan& second = d.plan();
  EXPECT_EQ(second.scheduled[0].num_tokens, 6U);
  EXPECT_EQ(second.scheduled[1].num_tokens, 4U);
  d.apply();
}

TEST(Waiting, Trap22AdmitsNoRequestInAStepThatPreempts) {
  CoreDriver d(sync_config(6));
  d.add(1, 8, 8);
  d.add(2, 11, 8);
  d.step();
  d.add(3, 1, 1);
  const StepPlan& plan = d.plan();
  EXPECT_EQ(values(plan.preempted), Ids({2}));
  EXPECT_EQ(scheduled_ids(plan), Ids({1})) << "request 3 has room now, but not in this step";
  d.apply();
}

TEST(Waiting, Trap22PausesStopNewRequestsOrAll) {
  CoreDriver d(sync_config());
  d.add(1, 4, 8);
  d.step();
  d.add(2, 4, 8);
  d.core->set_pause_state(PauseState::paused_new);
  EXPECT_EQ(d.core->counters().num_unfinished, 1);
  EXPECT_EQ(scheduled_ids(d.plan()), Ids({1}));
  d.apply();
  d.core->set_pause_state(PauseState::paused_all);
  EXPECT_EQ(d.core->counters().num_unfinished, 0);
  EXPECT_TRUE(d.plan().scheduled.empty());
  d.apply();
  d.core->set_pause_state(PauseState::unpaused);
  EXPECT_EQ(d.core->counters().num_unfinished, 2);
  EXPECT_EQ(scheduled_ids(d.plan()), Ids({1, 2}));
  d.apply();
}

NewRequest structured(std::uint64_t id, const Tokens& prompt) {
  NewRequest request = CoreDriver::request(id, prompt, 4);
  request.structured_output = true;
  return request;
}

// Skipped requests come before waiting requests and before requests skipped earlier. They keep their order.
TEST(Waiting, Trap23SkippedRequestsKeepTheirOrderAndComeFirst) {
  ScriptedGrammar grammar;
  CoreConfig config = sync_config();
  config.scheduler.max_num_seqs = 2;
  CoreDriver d(config, {.grammar = &grammar});
  for (const std::uint64_t id : {1U, 2U, 3U}) {
    grammar.not_ready.insert(RequestId{id});
    const Tokens prompt = CoreDriver::prompt(id, 4);
    d.add(structured(id, prompt));
  }
  d.add(4, 4, 8);
  EXPECT_EQ(scheduled_ids(d.plan()), Ids({4}));
  d.apply();
  EXPECT_EQ(values(d.snapshot().skipped_waiting), Ids({1, 2, 3}));
  d.add(5, 4, 8);
  grammar.not_ready.erase(RequestId{2});
  EXPECT_EQ(scheduled_ids(d.plan()), Ids({4, 2})) << "request 2 comes before request 5, which was never skipped";
  d.apply();
  EXPECT_EQ(values(d.snapshot().skipped_waiting), Ids({1, 3}));
  EXPECT_EQ(values(d.snapshot().waiting), Ids({5}));
}

TEST(Waiting, Trap23ComparesTheHeadsOfBothQueuesByPriority) {
  ScriptedGrammar grammar;
  CoreConfig config = priority_config(32);
  CoreDriver d(config, {.grammar = &grammar});
  const Tokens prompt = CoreDriver::prompt(1, 4);
  NewRequest request = structured(1, prompt);
  request.priority = 1;
  d.add(request);
  d.add_with_priority(2, 4, 0, 5.0);
  d.add_with_priority(3, 4, 2, 1.0);
  EXPECT_EQ(scheduled_ids(d.plan()), Ids({2, 1, 3}));
  d.apply();
}

TEST(Waiting, Trap24SkipsARequestWhoseAdapterExceedsTheLimit) {
  CoreConfig config = sync_config();
  config.limits.max_loras = 2;
  CoreDriver d(config);
  const std::int64_t adapters[] = {5, 6, 7, 5, 0};
  for (std::uint64_t id = 1; id <= 5; ++id) {
    const Tokens prompt = CoreDriver::prompt(id, 4);
    NewRequest request = CoreDriver::request(id, prompt, 2);
    request.lora_id = adapters[id - 1];
    d.add(request);
  }
  EXPECT_EQ(scheduled_ids(d.plan()), (Ids{1, 2, 4, 5})) << "a third adapter waits; a running adapter and the base model do not";
  EXPECT_EQ(values(d.snapshot().skipped_waiting), Ids{3});
  d.apply();
  EXPECT_EQ(scheduled_ids(d.plan()), (Ids{1, 2, 4, 5}));
  d.apply();
  EXPECT_EQ(scheduled_ids(d.plan()), Ids{3});
  d.apply();
}

TEST(Waiting, Trap25EndsAtAPromptThatDoesNotFitWithoutChunkedPrefill) {
  CoreConfig config = sync_config(64);
  config.scheduler.enable_chunked_prefill = false;
  config.scheduler.max_num_batched_tokens = 100;
  CoreDriver d(config);
  d.add(1, 60, 4);
  d.add(2, 60, 4);
  d.add(3, 10, 4);
  EXPECT_EQ(scheduled_ids(d.plan()), Ids({1}));
  d.apply();
}

TEST(Plan, Trap31SendsAllTokensOfRequestsThatWereNotInThePreviousPlan) {
  CoreDriver d(sync_config(5));
  d.add(1, 8, 3);
  d.add(2, 7, 8);
  d.step();
  d.step();  // request 2 is preempted
  d.step();  // request 1 ends
  const StepPlan& plan = d.plan();
  ASSERT_EQ(scheduled_ids(plan), Ids({2}));
  EXPECT_EQ(plan.scheduled[0].kind, ScheduledKind::resumed);
  EXPECT_TRUE(plan.scheduled[0].send_all_tokens);
  EXPECT_EQ(plan.table_deltas[0].update, TableUpdate::replace_all) << "a resumed request sends all its blocks";
  d.apply();
  const StepPlan& next = d.plan();
  EXPECT_FALSE(next.scheduled[0].send_all_tokens);
  d.apply();
}

TEST(Plan, SendsAllTokensAfterAForcedReset) {
  CoreDriver d(sync_config());
  d.add(1, 8, 8);
  d.step();
  EXPECT_TRUE(d.core->reset_prefix_cache(true, false).value());
  EXPECT_EQ(d.view(1).status, RequestStatus::preempted);
  EXPECT_TRUE(d.view(1).discard_latest_async_tokens);
  const StepPlan& plan = d.plan();
  EXPECT_TRUE(plan.preempted.empty()) << "the reset preempted the request, not this plan";
  ASSERT_EQ(plan.scheduled.size(), 1U);
  EXPECT_TRUE(plan.scheduled[0].send_all_tokens);
  EXPECT_EQ(plan.scheduled[0].num_tokens, 9U);
  d.apply();
}

TEST(Plan, Trap31ListsFinishedRequestsOnce) {
  CoreDriver d(sync_config());
  d.add(1, 4, 8);
  d.add(2, 4, 1);
  d.step();
  d.core->finish(RequestId{1}, RequestStatus::finished_aborted);
  EXPECT_TRUE(d.core->has_finished_requests());
  EXPECT_EQ(values(d.plan().finished), Ids({2, 1}));
  EXPECT_FALSE(d.core->has_finished_requests());
  d.apply();
  EXPECT_TRUE(d.plan().finished.empty());
  d.apply();
}

TEST(Plan, Trap32CommonPrefixCountsAllRequestsWithBlocks) {
  CoreDriver d(sync_config());
  const Tokens prompt = CoreDriver::prompt(1, 9);
  d.add(CoreDriver::request(1, prompt, 8));
  d.add(CoreDriver::request(2, prompt, 8));
  EXPECT_EQ(d.plan().num_common_prefix_blocks[0], 2U);
  d.apply();
  d.add(3, 4, 8);
  EXPECT_EQ(d.plan().num_common_prefix_blocks[0], 0U);
  d.apply();
}

TEST(Plan, SendsSampledTokensBackInAPipeline) {
  for (const bool pipeline : {false, true}) {
    CoreConfig config = sync_config();
    config.parallel.pipeline_parallel = pipeline;
    CoreDriver d(config);
    d.add(1, 4, 8);
    d.step({{1, {77}}});
    const StepPlan& plan = d.plan();
    ASSERT_EQ(plan.scheduled[0].new_tokens.size(), pipeline ? 1U : 0U);
    if (pipeline) EXPECT_EQ(plan.scheduled[0].new_tokens[0], 77);
    d.apply();
  }
}

TEST(Async, PlaceholdersStandForTokensInFlight) {
  CoreDriver d(async_config());
  d.add(1, 4, 3);
  EXPECT_EQ(d.plan().scheduled[0].num_output_tokens, 0);
  const StepPlan& second = d.plan();
  ASSERT_EQ(second.scheduled.size(), 1U);
  EXPECT_EQ(second.scheduled[0].num_computed_tokens, 4U);
  EXPECT_EQ(second.scheduled[0].num_output_tokens, 1);
  d.apply();
  EXPECT_EQ(d.plan().scheduled.size(), 1U);
  d.apply();
  EXPECT_TRUE(d.plan().scheduled.empty()) << "the token in flight is the last one";
  EXPECT_TRUE(d.apply().updates[0].finished);
}

TEST(Async, DraftPlaceholdersFillTheNextPlan) {
  CoreConfig config = async_config();
  config.speculation.num_spec_tokens = 2;
  CoreDriver d(config);
  d.add(1, 4, 20);
  d.plan();
  EXPECT_EQ(d.view(1).draft_tokens.size(), 2U);
  const StepPlan& plan = d.plan();
  ASSERT_EQ(plan.scheduled.size(), 1U);
  EXPECT_EQ(plan.scheduled[0].num_tokens, 3U);
  EXPECT_EQ(Tokens(plan.scheduled[0].drafts.begin(), plan.scheduled[0].drafts.end()), Tokens({-1, -1}));
  EXPECT_EQ(d.view(1).num_output_placeholders, 4);
}

TEST(Async, ReportsWhenAGrammarWaitsForTokens) {
  ScriptedGrammar grammar;
  CoreDriver d(async_config(), {.grammar = &grammar});
  const Tokens prompt = CoreDriver::prompt(1, 4);
  d.add(structured(1, prompt));
  const StepPlan& first = d.plan();
  EXPECT_TRUE(first.has_structured_output);
  EXPECT_FALSE(first.pending_structured_output);
  EXPECT_TRUE(d.plan().pending_structured_output);
}

// Chunks end at positions where a state can be kept. With EAGLE the last kept state is one block earlier.
TEST(MambaAlign, Trap18ChunksEndAtBlockEnds) {
  for (const bool eagle : {false, true}) {
    CoreConfig config = sync_config(64);
    config.mamba_align = true;
    config.speculation.use_eagle = eagle;
    config.speculation.num_spec_tokens = config.speculation.num_lookahead_tokens = eagle ? 1 : 0;
    config.cache_block_size = 4;
    config.scheduler.max_num_batched_tokens = 11;
    CoreDriver d(config);
    d.add(1, 18, 4);
    std::vector<std::uint32_t> chunks;
    for (int step = 0; step < 3; ++step) {
      chunks.push_back(d.plan().scheduled[0].num_tokens);
      d.apply();
    }
    EXPECT_EQ(chunks, eagle ? (std::vector<std::uint32_t>{8, 4, 6}) : (std::vector<std::uint32_t>{8, 8, 2}));
  }
}

TEST(MambaAlign, Trap18EndsTheWaitingLoopWhenTheBudgetIsBelowABlock) {
  CoreConfig config = sync_config(64);
  config.mamba_align = true;
  config.scheduler.max_num_batched_tokens = 6;
  CoreDriver d(config);
  d.add(1, 12, 4);
  d.add(2, 12, 4);
  EXPECT_EQ(scheduled_ids(d.plan()), Ids({1})) << "the 2 tokens that are left keep no state";
  d.apply();
}

TEST(MambaAlign, RunsDraftTokensPastABlockEnd) {
  CoreConfig config = sync_config(64);
  config.mamba_align = true;
  config.speculation.num_spec_tokens = 3;
  CoreDriver d(config);
  d.add(1, 7, 20);
  d.step();
  d.step();
  const Tokens drafts = {50, 51, 52};
  const Draft draft{RequestId{1}, drafts};
  d.core->set_drafts({&draft, 1});
  EXPECT_EQ(d.plan().scheduled[0].num_tokens, 4U) << "8 known tokens, 7 of them computed: decoding is not aligned";
  d.apply({{1, {50, 51, 52, 53}}});
}

TEST(MambaAlign, ALoadedPrefixMayEndWithinABlock) {
  ScriptedConnector connector;
  connector.matches[RequestId{1}] = {.num_tokens = 6, .load_async = false};
  CoreConfig config = sync_config(64);
  config.mamba_align = true;
  CoreDriver d(config, {.connector = &connector});
  d.add(1, 8, 4);
  EXPECT_EQ(d.plan().scheduled[0].num_tokens, 2U) << "the chunk ends at the block end, although it is shorter than a block";
  d.apply();
}

// vLLM sends nothing here either: its slice of the tokens is empty.
TEST(Plan, SendsNoNewTokensInAPipelineWhileOtherDraftsAreInFlight) {
  CoreConfig config = sync_config();
  config.parallel.pipeline_parallel = true;
  config.speculation.num_spec_tokens = 4;
  config.limits.max_outstanding_plans = 2;
  CoreDriver d(config);
  d.add(1, 8, 20);
  d.step();
  const Tokens two{5, 6}, four{5, 6, 7, 8};
  const Draft first{RequestId{1}, two}, more{RequestId{1}, four};
  d.core->set_drafts({&first, 1});
  EXPECT_EQ(d.plan().scheduled[0].num_tokens, 3U);
  d.core->set_drafts({&more, 1});
  const StepPlan& plan = d.plan();
  ASSERT_EQ(plan.scheduled.size(), 1U);
  EXPECT_EQ(plan.scheduled[0].num_tokens, 2U);
  EXPECT_EQ(plan.scheduled[0].drafts.size(), 4U);
  EXPECT_TRUE(plan.scheduled[0].new_tokens.empty());
}

TEST(Plan, SendsTheTokensOfTheChunkInAPipeline) {
  CoreConfig config = sync_config();
  config.parallel.pipeline_parallel = true;
  config.scheduler.max_num_batched_tokens = 4;
  CoreDriver d(config);
  d.add(1, 10, 8);
  d.step();
  const StepPlan& plan = d.plan();
  EXPECT_EQ(Tokens(plan.scheduled[0].new_tokens.begin(), plan.scheduled[0].new_tokens.end()), (Tokens{1004, 1005, 1006, 1007}));
  d.apply();
}

}  // namespace
}  // namespace quire::test
