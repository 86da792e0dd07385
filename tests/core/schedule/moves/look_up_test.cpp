// Tests lookups of a waiting request that holds blocks but has no computed tokens: a session that stops after a failed load has reset its
// computed tokens. Blocks of the prefix cache cannot be inserted before the blocks that it holds.
#include <gtest/gtest.h>

#include "core/schedule/core_driver.h"
#include "support/scripted_connector.h"

namespace quire::test {
namespace {

CoreConfig losing_config(DecisionProfile profile, bool has_cache) {
  CoreConfig config = async_config();
  config.decisions = profile;
  config.kv_load_failure = KvLoadFailurePolicy::recompute;
  config.prefix_cache.enable_prefix_caching = has_cache;
  return config;
}

// Session 1 has an answer to its 10 tokens. Its first block turns out to be corrupted while the last token of the answer is in flight. The
// session then gets the same 10 tokens again.
void lose_block_and_continue(CoreDriver& d) {
  const Tokens prompt = CoreDriver::prompt(1, 10);
  NewRequest session = CoreDriver::request(1, prompt, 20);
  session.resumable = true;
  d.add(session);
  d.plan();
  d.plan();
  d.apply();
  d.plan();
  const BlockId bad[] = {d.blocks(1).at(0)};
  d.apply({}, {.step = {}, .has_connector_output = true, .invalid_blocks = bad});
  d.apply({{1, {kEos}}});
  ASSERT_EQ(d.view(1).status, RequestStatus::waiting_for_input);
  ASSERT_EQ(d.view(1).num_computed_tokens, 0U);
  ASSERT_EQ(d.blocks(1).size(), 3U);
  const SessionInput again{.tokens = prompt, .max_tokens = 20, .eos_ids = kEosIds};
  ASSERT_TRUE(d.core->continue_session(RequestId{1}, &again, {.now = d.now}).has_value());
}

TEST(PrefixLookUp, HitsNothingWhenTheRequestHoldsBlocksWithoutComputedTokens) {
  for (const auto profile : {DecisionProfile::vllm_0_19, DecisionProfile::vllm_0_32}) {
    ScriptedConnector connector;
    CoreDriver d(losing_config(profile, true), {.connector = &connector});
    lose_block_and_continue(d);
    const auto blocks = d.blocks(1);
    ASSERT_TRUE(d.cached(blocks.at(0)) && d.cached(blocks.at(1))) << "a lookup would find the blocks";
    connector.log.clear();
    const StepPlan& plan = d.plan();
    ASSERT_EQ(plan.scheduled.size(), 1U);
    EXPECT_EQ(plan.scheduled[0].num_computed_tokens, 0U);
    EXPECT_EQ(plan.scheduled[0].num_tokens, 10U);
    EXPECT_EQ(connector.take_log().at(0), "match 1 local=0");
    EXPECT_EQ(d.blocks(1), blocks);
    d.apply();
  }
}

TEST(PrefixLookUp, LoadsIntoBlocksThatTheRequestHolds) {
  for (const auto profile : {DecisionProfile::vllm_0_19, DecisionProfile::vllm_0_32}) {
    ScriptedConnector connector;
    CoreDriver d(losing_config(profile, true), {.connector = &connector});
    lose_block_and_continue(d);
    const auto blocks = d.blocks(1);
    connector.matches[RequestId{1}] = {.num_tokens = 4, .load_async = false};
    const StepPlan& plan = d.plan();
    ASSERT_EQ(plan.scheduled.size(), 1U);
    EXPECT_EQ(plan.scheduled[0].num_computed_tokens, 4U);
    EXPECT_EQ(plan.scheduled[0].num_tokens, 6U);
    EXPECT_EQ(d.blocks(1), blocks);
    EXPECT_EQ(d.core->counters().external_hit_tokens, 4U);
    d.apply();
  }
}

TEST(PrefixLookUp, LoadsNothingIntoHeldBlocksWithoutAPrefixCache) {
  for (const auto profile : {DecisionProfile::vllm_0_19, DecisionProfile::vllm_0_32}) {
    ScriptedConnector connector;
    CoreDriver d(losing_config(profile, false), {.connector = &connector});
    lose_block_and_continue(d);
    connector.matches[RequestId{1}] = {.num_tokens = 8, .load_async = true};
    connector.log.clear();
    const StepPlan& plan = d.plan();
    ASSERT_EQ(plan.scheduled.size(), 1U) << "the request does not wait for a load";
    EXPECT_EQ(plan.scheduled[0].num_computed_tokens, 0U);
    EXPECT_EQ(plan.scheduled[0].num_tokens, 10U);
    EXPECT_EQ(connector.take_log().at(0), "match 1 local=0");
    EXPECT_EQ(d.core->counters().external_hit_tokens, 0U);
    d.apply();
  }
}

// Blocks of a window have hashes where a prompt ends, and where a second prompt was seen to diverge from a first one.
TEST(PrefixLookUp, FindsACommonPrefixInAllGroupsForTheThirdRequest) {
  CoreConfig config = sync_config(64);
  config.decisions = DecisionProfile::vllm_0_32;
  config.prefix_cache.retention_interval = 0;
  SlidingWindowSpec window;
  window.block_size = kBlockSize;
  window.sliding_window = 8;
  config.kv.groups.push_back({.layer_names = {"window"}, .spec = window, .layer_specs = {}});
  CoreDriver d(config);
  for (std::uint64_t id = 1; id <= 3; ++id) {
    Tokens prompt = CoreDriver::prompt(7, 16);
    prompt.resize(40, static_cast<TokenId>(100 * id));
    d.add(CoreDriver::request(id, prompt, 1));
    const StepPlan& plan = d.plan();
    ASSERT_EQ(plan.scheduled.size(), 1U);
    EXPECT_EQ(plan.scheduled[0].num_computed_tokens, id < 3 ? 0U : 16U) << "request " << id;
    d.apply();
  }
}

}  // namespace
}  // namespace quire::test
