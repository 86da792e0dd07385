// Tests sessions under vLLM 0.32.0 (DecisionRules::truncates_session_answers): at the end of an answer the tokens in flight are dropped,
// and each input has separate limits.
#include <gtest/gtest.h>

#include "core/schedule/core_driver.h"

namespace quire::test {
namespace {

CoreConfig newer_config(CoreConfig config) {
  config.decisions = DecisionProfile::vllm_0_32;
  return config;
}

void add_session(CoreDriver& d, std::uint64_t id, std::uint32_t num_prompt, std::uint32_t max_tokens) {
  const Tokens prompt = CoreDriver::prompt(id, num_prompt);
  NewRequest session = CoreDriver::request(id, prompt, max_tokens);
  session.resumable = true;
  d.add(session);
}

void send_input(CoreDriver& d, std::uint64_t id, const Tokens& input, std::uint32_t max_tokens) {
  const SessionInput more{.tokens = input, .arrival_time = d.now, .max_tokens = max_tokens, .stop_token_ids = kStopIds};
  ASSERT_TRUE(d.core->continue_session(RequestId{id}, &more, {.now = d.now}).has_value());
}

TEST(NewerSessions, DropTokensInFlightAfterAnAnswer) {
  CoreDriver d(newer_config(async_config()));
  add_session(d, 1, 8, 20);
  d.plan();
  d.plan();  // runs a token that is not known yet
  ASSERT_EQ(d.view(1).num_computed_tokens, 9U);
  ASSERT_EQ(d.view(1).num_output_placeholders, 2);
  const Outcome answer = d.apply({{1, {kStop}}});
  ASSERT_EQ(answer.updates.size(), 1U);
  EXPECT_TRUE(answer.updates[0].session_waits);
  EXPECT_EQ(d.view(1).status, RequestStatus::waiting_for_input);
  EXPECT_EQ(d.view(1).num_computed_tokens, 8U);
  EXPECT_EQ(d.view(1).num_output_placeholders, 0);
  const CoreSnapshot snapshot = d.snapshot();
  ASSERT_EQ(snapshot.requests.size(), 1U);
  EXPECT_TRUE(snapshot.requests[0].drops_stale);
  EXPECT_EQ(snapshot.requests[0].num_stale_tokens, 1);
  EXPECT_TRUE(snapshot.requests[0].draft_tokens.empty());
  send_input(d, 1, {71, 72, 73}, 2);
  EXPECT_TRUE(d.apply({{1, {99}}}).updates.empty()) << "the token belongs to no answer";
  const Tokens known(d.view(1).tokens.begin(), d.view(1).tokens.end());
  Tokens expected = CoreDriver::prompt(1, 8);
  expected.insert(expected.end(), {71, 72, 73});
  EXPECT_EQ(known, expected) << "the input follows the computed tokens";
  EXPECT_EQ(d.view(1).num_prompt_tokens, 11U);
  const StepPlan& plan = d.plan();
  ASSERT_EQ(plan.scheduled.size(), 1U);
  EXPECT_EQ(plan.scheduled[0].num_computed_tokens, 8U);
  EXPECT_EQ(plan.scheduled[0].num_tokens, 3U);
  d.apply();
}

TEST(NewerSessions, ApplyASeparateLimitToEachInput) {
  for (const DecisionProfile profile : {DecisionProfile::vllm_0_19, DecisionProfile::vllm_0_32}) {
    CoreConfig config = sync_config();
    config.decisions = profile;
    CoreDriver d(config);
    add_session(d, 1, 8, 2);
    for (int i = 0; i < 3; ++i) d.step();
    ASSERT_EQ(d.view(1).status, RequestStatus::waiting_for_input);
    EXPECT_EQ(d.outputs(1).size(), 2U);
    send_input(d, 1, {71, 72, 73}, 4);
    std::size_t num_outputs = 0;
    for (int i = 0; i < 8; ++i)
      for (const Update& update : d.step().updates) num_outputs += update.tokens.size();
    EXPECT_EQ(num_outputs, profile == DecisionProfile::vllm_0_19 ? 2U : 4U);
    EXPECT_EQ(d.view(1).status, RequestStatus::waiting_for_input);
    d.core->finish(RequestId{1}, RequestStatus::finished_aborted);
    EXPECT_TRUE(d.core->all_blocks_free());
  }
}

}  // namespace
}  // namespace quire::test
