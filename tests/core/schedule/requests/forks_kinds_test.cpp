// Tests forks of sessions and of requests with a grammar.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/schedule/core_driver.h"
#include "core/schedule/requests/forking.h"
#include "support/scripted_connector.h"

namespace quire::test {
namespace {

// The session waits between two inputs when it is forked.
TEST(Forks, ForkASessionIntoAnOrdinaryRequest) {
  CoreDriver d(sync_config());
  const Tokens prompt = CoreDriver::prompt(1, 6);
  NewRequest session = CoreDriver::request(1, prompt, 3);
  session.resumable = true;
  d.add(session);
  for (int i = 0; i < 3; ++i) d.step();
  ASSERT_EQ(d.view(1).status, RequestStatus::waiting_for_input);
  ASSERT_TRUE(fork(d, 1, {.id = RequestId{2}, .max_tokens = 6}).has_value());
  EXPECT_EQ(d.view(2).num_computed_tokens, 8U);
  const Tokens more = {7, 8};
  const SessionInput input{.tokens = more};
  ASSERT_TRUE(d.core->continue_session(RequestId{1}, &input).has_value());
  for (int i = 0; i < 3; ++i) d.step();
  EXPECT_FALSE(d.known(2)) << "the child has its six outputs";
  EXPECT_EQ(d.view(1).status, RequestStatus::waiting_for_input);
}

// This is what a beam search does: each session waits after one token, its children continue with chosen tokens, and it ends.
TEST(Forks, ForkAWaitingSessionIntoSessions) {
  for (const bool async : {false, true}) {
    CoreDriver d(async ? async_config() : sync_config());
    const Tokens prompt = CoreDriver::prompt(1, 10);
    NewRequest session = CoreDriver::request(1, prompt, 1);
    session.resumable = true;
    d.add(session);
    d.step();
    std::uint64_t parent = 1;
    for (std::uint32_t step = 0; step < 6; ++step) {
      ASSERT_EQ(d.view(parent).status, RequestStatus::waiting_for_input);
      EXPECT_EQ(d.plan().num_scheduled_tokens, 0U) << "a session does not continue without a chosen token";
      d.apply();
      for (const std::uint64_t child : {parent + 1, parent + 2}) {
        const auto forked = fork(d, parent,
                                 {.id = RequestId{child},
                                  .arrival_time = static_cast<double>(child),
                                  .num_tokens = 10 + step,
                                  .next_token = static_cast<TokenId>(child),
                                  .max_tokens = step + 2,
                                  .resumable = true});
        ASSERT_TRUE(forked.has_value()) << forked.error().to_string();
      }
      d.core->finish(RequestId{parent}, RequestStatus::finished_stopped);
      if (parent > 1) d.core->finish(RequestId{parent - 1}, RequestStatus::finished_stopped);
      d.core->check_invariants();
      const StepPlan& plan = d.plan();
      EXPECT_EQ(plan.num_scheduled_tokens, 2U) << "each child runs one token";
      EXPECT_EQ(plan.copies.size(), (10 + step) % 4 == 0 ? 0U : 1U);
      d.apply();
      parent += 2;
    }
    for (const std::uint64_t id : {parent, parent - 1}) d.core->finish(RequestId{id}, RequestStatus::finished_stopped);
    d.step();
    EXPECT_TRUE(d.core->all_blocks_free());
  }
}

TEST(Forks, ApplyTheParentsGrammarToTheChild) {
  ScriptedGrammar grammar;
  CoreDriver d(sync_config(), {.grammar = &grammar});
  const Tokens prompt = CoreDriver::prompt(1, 6);
  NewRequest request = CoreDriver::request(1, prompt, 20);
  request.structured_output = true;
  d.add(request);
  d.step();
  d.step();
  grammar.log.clear();
  must_fork(d, 1, 2);
  ASSERT_TRUE(fork(d, 1, {.id = RequestId{3}, .arrival_time = 3.0, .num_tokens = 7, .next_token = 77}).has_value());
  EXPECT_EQ(grammar.log, (std::vector<std::string>{"fork 1 2 at 2", "fork 1 3 at 1", "accept 3 [77]"}));
  EXPECT_TRUE(d.plan().has_structured_output);
  EXPECT_EQ(d.scheduled(2), 1U);
  d.apply();
  const std::string accepted = fmt::format("accept 2 [{}]", d.outputs(2).back());
  EXPECT_EQ(std::ranges::count(grammar.log, accepted), 1) << accepted;
  grammar.not_forking = {RequestId{1}};
  expect_refused(d, 1, {.id = RequestId{4}}, {"parent", ErrorCode::unsupported});
  EXPECT_FALSE(d.known(4));
}

TEST(Forks, WaitForTheGrammarAsTheParentDoes) {
  ScriptedGrammar grammar;
  grammar.not_ready = {RequestId{1}, RequestId{2}};
  CoreDriver d(sync_config(), {.grammar = &grammar});
  const Tokens prompt = CoreDriver::prompt(1, 6);
  NewRequest request = CoreDriver::request(1, prompt, 20);
  request.structured_output = true;
  d.add(request);
  must_fork(d, 1, 2);
  EXPECT_TRUE(d.plan().scheduled.empty());
  d.apply();
  grammar.not_ready.clear();
  EXPECT_EQ(d.plan().scheduled.size(), 2U);
  d.apply();
}

}  // namespace
}  // namespace quire::test
