// Tests that sessions which wait for their next input release their blocks when other requests need some (FixOptions::idle_sessions_yield),
// and continue with the same tokens.
#include <vector>

#include "core/schedule/core_driver.h"
#include "quire/connector.h"
#include "support/scripted_connector.h"

namespace quire::test {
namespace {

CoreConfig yielding_config(CoreConfig config, bool yields = true) {
  config.fixes.cut_sessions = true;
  config.fixes.idle_sessions_yield = yields;
  return config;
}

// Runs a session until its answer of one token is complete and it waits for its next input.
void run_until_waiting(CoreDriver& d, std::uint64_t id, std::uint32_t num_prompt_tokens) {
  const Tokens prompt = CoreDriver::prompt(id, num_prompt_tokens);
  NewRequest request = CoreDriver::request(id, prompt, 9);
  request.resumable = true;
  d.add(request);
  d.step({{id, {kStop}}});
  d.step();  // the previous plan and its transfers no longer need the blocks
  ASSERT_EQ(d.view(id).status, RequestStatus::waiting_for_input);
}

void give_input(CoreDriver& d, std::uint64_t id, const Tokens& tokens) {
  const SessionInput input{.tokens = tokens, .arrival_time = 100.0, .eos_ids = kEosIds, .stop_token_ids = kStopIds};
  ASSERT_TRUE(d.core->continue_session(RequestId{id}, &input, {.now = d.now}).has_value());
}

TEST(IdleSessions, ReleaseTheirBlocksForAWaitingRequest) {
  for (const bool yields : {false, true}) {
    CoreDriver d(yielding_config(sync_config(13), yields));  // 12 blocks
    for (std::uint64_t id = 1; id <= 3; ++id) run_until_waiting(d, id, 15);
    EXPECT_EQ(d.core->counters().num_free_blocks, 0U);
    d.add(10, 30, 3);
    d.step();
    EXPECT_EQ(d.view(10).status, yields ? RequestStatus::running : RequestStatus::waiting);
    if (!yields) continue;
    EXPECT_TRUE(d.blocks(1).empty()) << "sessions 1 and 2 have waited longest";
    EXPECT_TRUE(d.blocks(2).empty());
    EXPECT_EQ(d.blocks(3).size(), 4U) << "only the needed blocks are released";
  }
}

TEST(IdleSessions, ReleaseTheirBlocksBeforeARunningRequestIsPreempted) {
  CoreDriver d(yielding_config(sync_config(9)));  // 8 blocks
  run_until_waiting(d, 1, 15);
  d.add(10, 7, 20);
  d.add(11, 7, 20);
  for (int i = 0; i < 4; ++i) d.step();
  EXPECT_TRUE(d.blocks(1).empty());
  EXPECT_EQ(d.core->counters().num_preemptions, 0U);
}

// The session reuses cached blocks, or recomputes from the first token.
TEST(IdleSessions, ContinueWithTheTokensThatTheyHadComputed) {
  for (const bool caches : {true, false}) {
    for (CoreConfig config : {sync_config(13), async_config(13)}) {
      config.prefix_cache.enable_prefix_caching = caches;
      Tokens with_blocks;
      for (const bool yields : {false, true}) {
        CoreDriver d(yielding_config(config, yields));
        run_until_waiting(d, 1, 15);
        if (yields) {
          d.add(10, 47, 1);
          d.step();
          EXPECT_TRUE(d.blocks(1).empty());
        }
        give_input(d, 1, {61, 62});
        const RequestView view = d.view(1);
        const Tokens tokens(view.tokens.begin(), view.tokens.end());
        if (!yields) with_blocks = tokens;
        EXPECT_EQ(tokens, with_blocks);
        EXPECT_EQ(view.num_computed_tokens == 0, yields);
        d.plan();
        EXPECT_EQ(d.scheduled(1), yields ? tokens.size() : 2U) << "its blocks were reused for other content";
        d.apply();
      }
    }
  }
}

TEST(IdleSessions, ReuseTheirBlocksThatAreStillCached) {
  CoreDriver d(yielding_config(sync_config(13)));
  run_until_waiting(d, 1, 15);
  run_until_waiting(d, 2, 15);
  d.add(10, 20, 1);
  d.step({{10, {kStop}}});
  ASSERT_TRUE(d.blocks(1).empty());
  give_input(d, 1, {61, 62});
  d.plan();
  EXPECT_LT(d.scheduled(1), 17U) << "some of its blocks were not reused";
  EXPECT_GT(d.scheduled(1), 0U);
  d.apply();
}

// A child that waits for input reports the computed tokens of its parent, with or without blocks.
TEST(IdleSessions, CanBeForkedAfterTheyReleasedTheirBlocks) {
  CoreDriver d(yielding_config(sync_config(13)));
  run_until_waiting(d, 1, 15);
  d.add(10, 47, 1);
  d.step({{10, {kStop}}});
  ASSERT_TRUE(d.blocks(1).empty());
  const auto forked = d.core->fork(RequestId{1}, {.id = RequestId{2}, .resumable = true, .waits_for_input = true}, {.now = d.now});
  ASSERT_TRUE(forked.has_value()) << forked.error().to_string();
  d.core->check_invariants();
  EXPECT_EQ(d.view(2).num_computed_tokens, d.view(1).num_computed_tokens);
  for (const std::uint64_t id : {1U, 2U}) give_input(d, id, {61, 62});
  EXPECT_TRUE(std::ranges::equal(d.view(1).tokens, d.view(2).tokens));
  d.step();
  d.step();
  d.core->check_invariants();
}

// Above the mark no request is admitted while others run. Sessions that only wait must not block an admission.
TEST(IdleSessions, ReleaseTheirBlocksWhenPressureBlocksAnAdmission) {
  CoreConfig config = yielding_config(sync_config(21));
  config.pressure = {.pressure_high = 0.5, .pressure_low = 0.4};
  CoreDriver d(config);
  d.add(20, 3, 50);
  for (std::uint64_t id = 1; id <= 3; ++id) run_until_waiting(d, id, 15);
  d.add(10, 7, 3);
  d.step();
  EXPECT_EQ(d.view(10).status, RequestStatus::running);
  EXPECT_EQ(d.view(20).status, RequestStatus::running);
}

TEST(IdleSessions, EndAfterTheyReleasedTheirBlocks) {
  CoreDriver d(yielding_config(sync_config(9)));
  run_until_waiting(d, 1, 15);
  d.add(10, 25, 3);
  d.step();
  ASSERT_TRUE(d.blocks(1).empty());
  EXPECT_TRUE(d.core->continue_session(RequestId{1}, nullptr, {.now = d.now}).has_value());
  EXPECT_EQ(d.core->finish(RequestId{10}, RequestStatus::finished_aborted, {.now = d.now}), FinishEffect::retired);
  d.step();
  EXPECT_TRUE(d.core->all_blocks_free());
}

// A model without attention has no cache groups, so its sessions hold and release no blocks. vLLM reports the tokens that they computed.
TEST(IdleSessions, ReportComputedTokensAtTheEndWithoutCacheGroups) {
  ScriptedConnector ends;
  CoreConfig config = yielding_config(sync_config(), false);
  config.kv.groups.clear();
  config.prefix_cache.enable_prefix_caching = false;
  CoreDriver d(config, {.connector = &ends});
  run_until_waiting(d, 1, 15);
  d.core->finish(RequestId{1}, RequestStatus::finished_aborted, {.now = d.now});
  EXPECT_EQ(ends.num_computed_at_end, std::vector<std::uint32_t>{15});
}

TEST(IdleSessions, ReportNoComputedTokensAtTheEndAfterReleasingBlocks) {
  ScriptedConnector ends;
  CoreDriver d(yielding_config(sync_config(9)), {.connector = &ends});
  run_until_waiting(d, 1, 15);
  d.add(10, 25, 3);
  d.step();
  ASSERT_TRUE(d.blocks(1).empty());
  d.core->finish(RequestId{1}, RequestStatus::finished_aborted, {.now = d.now});
  EXPECT_EQ(ends.num_computed_at_end, std::vector<std::uint32_t>{0});
}

}  // namespace
}  // namespace quire::test
