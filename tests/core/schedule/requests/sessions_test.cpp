// Tests streaming sessions with inputs that arrive before, while and after the session runs.
#include "core/schedule/core_driver.h"
#include "support/scripted_connector.h"

namespace quire::test {
namespace {

void begin(CoreDriver& d, std::uint64_t id, std::uint32_t num_prompt_tokens, std::uint32_t max_tokens) {
  const Tokens prompt = CoreDriver::prompt(id, num_prompt_tokens);
  NewRequest request = CoreDriver::request(id, prompt, max_tokens);
  request.resumable = true;
  d.add(request);
}

void send_input(CoreDriver& d, std::uint64_t id, const Tokens& tokens) {
  const SessionInput input{.tokens = tokens, .arrival_time = 100.0, .eos_ids = kEosIds, .stop_token_ids = kStopIds};
  const auto result = d.core->continue_session(RequestId{id}, &input, {.now = d.now});
  EXPECT_TRUE(result.has_value()) << result.error().to_string();
}

void end(CoreDriver& d, std::uint64_t id) {
  EXPECT_TRUE(d.core->continue_session(RequestId{id}, nullptr, {.now = d.now}).has_value());
}

Tokens tokens_of(const CoreDriver& d, std::uint64_t id) {
  const RequestView view = d.view(id);
  return {view.tokens.begin(), view.tokens.end()};
}

TEST(Sessions, Trap34DropTheLastTokenBetweenTwoInputs) {
  CoreDriver d(sync_config());
  begin(d, 1, 3, 9);
  d.step({{1, {30}}});
  const Outcome stop = d.step({{1, {kStop}}});
  ASSERT_EQ(stop.updates.size(), 1U);
  EXPECT_TRUE(stop.updates[0].finished);
  EXPECT_TRUE(stop.updates[0].session_waits);
  EXPECT_EQ(stop.updates[0].reason, FinishReason::stop) << "the reason is read before the session continues";
  EXPECT_TRUE(stop.retired.empty());
  EXPECT_EQ(d.view(1).status, RequestStatus::waiting_for_input);
  EXPECT_EQ(d.blocks(1).size(), 1U) << "a waiting session keeps its blocks";
  EXPECT_EQ(d.core->counters().num_unfinished, 0);
  EXPECT_TRUE(d.core->has_work());
  d.step();
  EXPECT_EQ(d.scheduled(1), 0U);

  send_input(d, 1, {61, 62});
  EXPECT_EQ(tokens_of(d, 1), (Tokens{1000, 1001, 1002, 30, 61, 62}));
  EXPECT_EQ(d.view(1).num_prompt_tokens, 6U);
  EXPECT_EQ(d.view(1).num_computed_tokens, 4U);
  EXPECT_EQ(d.view(1).status, RequestStatus::waiting);
  EXPECT_EQ(d.core->counters().num_unfinished, 1);
  const Outcome outcome = d.step({{1, {33}}});
  EXPECT_EQ(d.outputs(1), Tokens{33});
  ASSERT_EQ(outcome.updates.at(0).events.size(), 2U);
  EXPECT_EQ(outcome.updates[0].events[0].kind, RequestEventKind::queued);
}

TEST(Sessions, StartAQueuedInputImmediately) {
  CoreDriver d(sync_config());
  begin(d, 1, 3, 9);
  send_input(d, 1, {61, 62});
  send_input(d, 1, {71});
  const Outcome first = d.step({{1, {kEos}}});
  EXPECT_TRUE(first.updates.at(0).finished);
  EXPECT_TRUE(first.updates.at(0).session_waits);
  EXPECT_EQ(values(d.snapshot().waiting), std::vector<std::uint64_t>{1});
  EXPECT_TRUE(d.snapshot().running.empty());
  EXPECT_EQ(tokens_of(d, 1), (Tokens{1000, 1001, 1002, 61, 62}));
  d.step({{1, {kEos}}});
  EXPECT_EQ(tokens_of(d, 1), (Tokens{1000, 1001, 1002, 61, 62, 71}));
}

TEST(Sessions, EndWhenAnInputNoLongerFitsUnlessOversizedInputsAreAdmitted) {
  for (const bool admit_oversized : {false, true}) {
    CoreConfig config = sync_config();
    config.scheduler.max_model_len = 8;
    config.scheduler.admit_oversized = admit_oversized;
    CoreDriver d(config);
    begin(d, 1, 3, 3);
    send_input(d, 1, {61, 62, 63});
    d.step();
    d.step();
    const Outcome outcome = d.step();
    EXPECT_TRUE(outcome.updates.at(0).finished);
    EXPECT_EQ(outcome.updates.at(0).session_waits, admit_oversized);
    EXPECT_EQ(d.known(1), admit_oversized);
  }
}

TEST(Sessions, CanBeEndedInEveryState) {
  CoreDriver d(sync_config());
  begin(d, 1, 3, 9);
  begin(d, 2, 3, 9);
  end(d, 1);
  const Outcome stop = d.step({{1, {kEos}}, {2, {kEos}}});
  EXPECT_FALSE(stop.updates.at(0).session_waits);
  EXPECT_TRUE(stop.updates.at(1).session_waits);
  EXPECT_EQ(stop.retired, std::vector<std::uint64_t>{1});
  end(d, 2);
  EXPECT_FALSE(d.known(2));
  EXPECT_FALSE(d.core->has_work());
  EXPECT_TRUE(d.core->all_blocks_free());
  EXPECT_EQ(d.step().retired, std::vector<std::uint64_t>{2});
}

TEST(Sessions, Trap34KeepMaxTokensForEachInput) {
  CoreDriver d(sync_config());
  begin(d, 1, 3, 2);
  send_input(d, 1, {61});
  d.step();
  EXPECT_EQ(d.step().updates.at(0).reason, FinishReason::length);
  d.step();
  EXPECT_EQ(d.step().updates.at(0).reason, FinishReason::length) << "the second answer has two tokens too";
}

TEST(Sessions, Trap34ShiftItemsOfAnInputByTheTokensBeforeIt) {
  CoreConfig config = sync_config();
  config.encoder.max_encoder_tokens = 100;
  config.encoder.encoder_cache_size = 100;
  CoreDriver d(config);
  begin(d, 1, 3, 9);
  d.step({{1, {kEos}}});
  const Tokens tokens = {61, 62, 63, 64};
  const MultimodalFeature image{"image", {1, 2}};
  const SessionInput input{.tokens = tokens, .multimodal = {&image, 1}, .eos_ids = kEosIds};
  ASSERT_TRUE(d.core->continue_session(RequestId{1}, &input, {}).has_value());
  const StepPlan& plan = d.plan();
  ASSERT_EQ(plan.scheduled.size(), 1U);
  EXPECT_EQ(plan.scheduled[0].num_tokens, 4U);
  EXPECT_EQ(plan.scheduled[0].encoder_inputs.size(), 1U);
  d.apply({{1, {kEos}}});
  const MultimodalFeature first{"another image", {0, 2}};
  const SessionInput again{.tokens = tokens, .multimodal = {&first, 1}, .eos_ids = kEosIds};
  ASSERT_TRUE(d.core->continue_session(RequestId{1}, &again, {}).has_value()) << "an item may begin the input";
  EXPECT_EQ(d.plan().scheduled[0].encoder_inputs.size(), 1U);
  d.apply();
}

TEST(Sessions, AreNotCountedAfterAnAbortWhileWaiting) {
  CoreDriver d(sync_config());
  begin(d, 1, 3, 9);
  d.step({{1, {kEos}}});
  EXPECT_EQ(d.core->finish(RequestId{1}, RequestStatus::finished_aborted), FinishEffect::retired);
  d.core->check_invariants();
  EXPECT_EQ(d.core->counters().num_unfinished, 0);
  EXPECT_TRUE(d.core->all_blocks_free());
}

TEST(Sessions, AppendATokenPlannedAfterTheStop) {
  CoreDriver d(async_config());
  begin(d, 1, 3, 9);
  d.plan();
  d.plan();
  EXPECT_TRUE(d.apply({{1, {kEos}}}).updates.at(0).session_waits);
  EXPECT_EQ(d.apply({{1, {33}}}).updates.at(0).tokens, Tokens{33});
  EXPECT_EQ(d.view(1).num_output_placeholders, 0);
  EXPECT_EQ(d.core->counters().num_unfinished, 0);
  send_input(d, 1, {61});
  EXPECT_EQ(tokens_of(d, 1), (Tokens{1000, 1001, 1002, kEos, 61})) << "the computed tokens stay";
  d.step();
}

TEST(Sessions, StayInTheQueueWhenALateTokenStopsThemAgain) {
  CoreDriver d(async_config());
  begin(d, 1, 3, 9);
  d.plan();
  d.plan();
  d.apply({{1, {kEos}}});
  const Outcome late = d.apply({{1, {kEos}}});
  EXPECT_TRUE(late.updates.at(0).session_waits);
  EXPECT_EQ(values(d.snapshot().skipped_waiting), std::vector<std::uint64_t>{1});
  EXPECT_EQ(d.core->counters().num_unfinished, 0);
}

// A queue by priority is a heap. A request at its front stays there after its arrival time changes, until the heap is rebuilt. vLLM
// rebuilds the heap of `skipped_waiting` when a request is removed from it, but not when a preempted request ends in `waiting`.
TEST(Sessions, KeepTheirOrderWhenAnotherRequestEndsLate) {
  CoreConfig config = async_config(6);  // one block for each session and three for the others
  config.scheduler.policy = SchedulingPolicy::priority;
  CoreDriver d(config);
  begin(d, 1, 3, 9);
  begin(d, 2, 3, 9);
  d.plan();
  d.apply({{1, {kEos}}, {2, {kEos}}});
  const auto arrive = [&](std::uint64_t id, double arrival_time) {
    const Tokens tokens = {61};
    const SessionInput input{.tokens = tokens, .arrival_time = arrival_time, .eos_ids = kEosIds};
    ASSERT_TRUE(d.core->continue_session(RequestId{id}, &input, {.now = d.now}).has_value());
  };
  d.add(3, 3, 9);
  d.add(4, 4, 9);
  d.plan();
  d.core->set_pause_state(PauseState::paused_new);
  arrive(1, 100.0);
  arrive(2, 50.0);
  d.plan();  // request 3 runs token 4, request 4 runs token 5 in its second block
  d.apply();
  d.plan();  // request 3 needs a second block: request 4 is preempted with a token in flight
  ASSERT_EQ(d.view(4).status, RequestStatus::preempted);
  EXPECT_TRUE(d.apply({{3, {11}}, {4, {kEos}}}).updates.at(1).finished);
  EXPECT_EQ(values(d.snapshot().skipped_waiting), (Ids{1, 2}));
  d.apply();
}

TEST(Sessions, RefuseBadInputsWithoutAChange) {
  CoreDriver d(sync_config());
  begin(d, 1, 3, 9);
  d.add(2, 3, 9);
  const Tokens tokens = {61};
  const Tokens too_many(200, 61);
  const MultimodalFeature outside{"image", {1, 2}};
  const SessionInput input{.tokens = tokens};
  const SessionInput long_input{.tokens = too_many};
  const SessionInput empty{};
  const SessionInput bad_item{.tokens = tokens, .multimodal = {&outside, 1}};
  EXPECT_EQ(d.core->continue_session(RequestId{9}, &input).error().field, "id");
  EXPECT_EQ(d.core->continue_session(RequestId{2}, &input).error().field, "id");
  EXPECT_EQ(d.core->continue_session(RequestId{1}, &empty).error().field, "tokens");
  EXPECT_EQ(d.core->continue_session(RequestId{1}, &long_input).error().field, "tokens");
  EXPECT_EQ(d.core->continue_session(RequestId{1}, &bad_item).error().field, "multimodal");
  d.step({{1, {kEos}}});
  EXPECT_EQ(d.view(1).status, RequestStatus::waiting_for_input) << "no input was kept";
}

TEST(Sessions, AcceptAnInputThatLeavesOneSlotInTheModelsContext) {
  CoreConfig config = sync_config();
  config.scheduler.max_model_len = 12;
  CoreDriver d(config);
  begin(d, 1, 4, 9);
  d.step({{1, {30}}});
  d.step({{1, {kStop}}});  // 5 tokens are computed
  const Tokens seven(7, 60);
  const SessionInput too_long{.tokens = seven, .eos_ids = kEosIds, .stop_token_ids = kStopIds};
  const auto refused = d.core->continue_session(RequestId{1}, &too_long, {.now = d.now});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().field, "tokens");
  send_input(d, 1, Tokens(6, 60));
  EXPECT_EQ(d.view(1).tokens.size(), 11U) << "one slot is left for an output";
}

TEST(Sessions, ApplyTheParametersOfEachInput) {
  CoreDriver d(sync_config());
  begin(d, 1, 3, 20);
  d.step({{1, {kStop}}});
  const SamplingParams sampling;
  const TokenId other_eos[] = {81}, other_stop[] = {82};
  const SessionInput input{.tokens = kStopIds,
                           .arrival_time = 100.0,
                           .min_tokens = 2,
                           .eos_ids = other_eos,
                           .stop_token_ids = other_stop,
                           .repetition = {},
                           .sampling = &sampling};
  ASSERT_TRUE(d.core->continue_session(RequestId{1}, &input, {.now = d.now}).has_value());
  const StepPlan& plan = d.plan();
  ASSERT_EQ(plan.admitted.size(), 1U);
  EXPECT_EQ(plan.admitted[0].sampling, input.sampling);
  EXPECT_FALSE(d.apply({{1, {82}}}).updates.at(0).finished) << "the first of at least two tokens";
  EXPECT_FALSE(d.step({{1, {kStop}}}).updates.at(0).finished);
  EXPECT_FALSE(d.step({{1, {kEos}}}).updates.at(0).finished);
  EXPECT_EQ(d.step({{1, {82}}}).updates.at(0).stop_token, 82);
}

// The blocks of two sessions fill the cache, and the next input of each needs more blocks.
TEST(Sessions, ReleaseBlocksWhenTheyWaitForEachOther) {
  for (const bool give_way : {false, true}) {
    CoreConfig config = sync_config(7);
    config.fixes.loaded_give_way = give_way;
    config.scheduler.reserve_full_isl = false;
    CoreDriver d(config);
    begin(d, 1, 9, 4);
    begin(d, 2, 9, 4);
    d.step({{1, {kStop}}, {2, {kStop}}});
    ASSERT_EQ(d.blocks(1).size() + d.blocks(2).size(), 6U) << "no block is free";
    send_input(d, 1, {61, 62, 63, 64, 65});
    send_input(d, 2, {71, 72, 73, 74, 75});
    d.step();
    d.plan();
    EXPECT_EQ(d.scheduled(1), give_way ? 5U : 0U);
    EXPECT_EQ(d.scheduled(2), 0U);
    d.apply({{1, {kStop}}});
    if (!give_way) continue;
    EXPECT_EQ(tokens_of(d, 2).size(), 14U) << "the session keeps its tokens";
    EXPECT_EQ(d.view(2).num_computed_tokens, 0U);
    end(d, 1);
    d.plan();
    EXPECT_GE(d.scheduled(2), 6U) << "tokens that are not in the prefix cache are recomputed";
    d.apply({{2, {kStop}}});
    end(d, 2);
    d.step();
    EXPECT_TRUE(d.core->all_blocks_free());
  }
}

// The step in flight at the end of an answer computes the last token of the answer and samples an unwanted token.
TEST(CutSessions, IgnoreLateTokensAndContinueWithTheNextInput) {
  CoreConfig config = async_config();
  config.fixes.cut_sessions = true;
  CoreDriver d(config);
  begin(d, 1, 5, 9);
  d.plan();
  d.plan();
  d.apply({{1, {30}}});
  d.plan();
  const Outcome stop = d.apply({{1, {kStop}}});
  EXPECT_TRUE(stop.updates.at(0).session_waits);
  const Outcome late = d.apply({{1, {55}}});
  EXPECT_TRUE(late.updates.empty());
  EXPECT_EQ(tokens_of(d, 1), (Tokens{1000, 1001, 1002, 1003, 1004, 30, kStop}));
  send_input(d, 1, {61, 62});
  EXPECT_EQ(tokens_of(d, 1), (Tokens{1000, 1001, 1002, 1003, 1004, 30, kStop, 61, 62})) << "the stop token has been computed";
  EXPECT_EQ(d.view(1).num_computed_tokens, 7U);
  EXPECT_EQ(d.view(1).num_output_placeholders, 0);
  EXPECT_TRUE(d.view(1).draft_tokens.empty());
  d.plan();
  EXPECT_EQ(d.scheduled(1), 2U);
  d.apply();
}

// In a pipeline the token in flight may be the last of the answer. The next input must not run on blocks that are still being loaded.
TEST(CutSessions, LoadNothingWhileATokenIsInFlight) {
  for (const bool cuts : {false, true}) {
    ScriptedConnector connector;
    CoreConfig config = sync_config();
    config.limits.max_outstanding_plans = 2;
    config.fixes.cut_sessions = cuts;
    CoreDriver d(config, {.connector = &connector});
    begin(d, 1, 10, 9);
    d.plan();
    ASSERT_TRUE(d.core->reset_prefix_cache(true).value());
    connector.matches[RequestId{1}] = {.num_tokens = 8, .load_async = true};
    EXPECT_TRUE(d.plan().scheduled.empty());
    EXPECT_EQ(d.view(1).status, cuts ? RequestStatus::preempted : RequestStatus::waiting_for_remote_kv);
    EXPECT_TRUE(d.apply({{1, {kStop}}}).updates.at(0).session_waits);
    // No token is computed, so the host sends all tokens again.
    send_input(d, 1, CoreDriver::prompt(1, 12));
    d.apply();
    d.plan();
    EXPECT_EQ(d.view(1).status, cuts ? RequestStatus::waiting_for_remote_kv : RequestStatus::running) << "vLLM does not wait for the load";
    d.apply();
    if (!cuts) continue;
    d.plan();
    const RequestId received[] = {RequestId{1}};
    d.apply({}, {.has_connector_output = true, .finished_receiving = received});
    d.plan();
    EXPECT_GT(d.scheduled(1), 0U) << "its load is complete";
    d.apply();
  }
}

// Without async scheduling the last token of an answer completes a block whose content changes with the next input.
TEST(CutSessions, RehashABlockWhoseContentChanges) {
  for (const bool cuts : {false, true}) {
    CoreConfig config = sync_config();
    config.fixes.cut_sessions = cuts;
    CoreDriver d(config);
    begin(d, 1, 3, 9);
    d.step({{1, {kStop}}});
    ASSERT_EQ(d.view(1).tokens.size(), 4U);
    const std::vector<std::uint8_t> before(d.view(1).block_hashes.begin(), d.view(1).block_hashes.end());
    send_input(d, 1, {61});
    const std::vector<std::uint8_t> after(d.view(1).block_hashes.begin(), d.view(1).block_hashes.end());
    EXPECT_EQ(before.size(), after.size());
    EXPECT_EQ(before == after, !cuts) << "vLLM keeps the old hash";
    d.step();
  }
}

}  // namespace
}  // namespace quire::test
