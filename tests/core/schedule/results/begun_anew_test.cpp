// Tests that requests restart when they ran on blocks whose load failed, and that requests which share only earlier blocks continue. Also
// tests tokens in flight of preempted requests.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/schedule/core_driver.h"
#include "core/schedule/named_tier.h"
#include "core/schedule/requests/forking.h"
#include "support/scripted_connector.h"

namespace quire::test {
namespace {

CoreConfig fixed_config(CoreConfig config = sync_config()) {
  config.kv_load_failure = KvLoadFailurePolicy::recompute;
  config.fixes.unloaded_begin_anew = true;
  return config;
}

StepResult not_loaded(const std::vector<BlockId>& blocks) {
  return {.step = {}, .has_connector_output = true, .invalid_blocks = blocks};
}

// Requests 1 and 2 share their first block and have private blocks after it. Request 3 shares all full blocks of request 1.
struct Three {
  explicit Three(const CoreConfig& config) : d(config, {.connector = &connector}) {
    const Tokens prompt = CoreDriver::prompt(1, 14);
    Tokens other = prompt;
    other[5] = 7;
    d.add(CoreDriver::request(1, prompt, 20));
    d.step();
    d.add(CoreDriver::request(2, other, 20));
    d.add(CoreDriver::request(3, prompt, 20));
    for (int i = 0; i < 3; ++i) d.step();
    EXPECT_EQ(d.blocks(1)[0], d.blocks(2)[0]);
    EXPECT_EQ(d.blocks(1)[2], d.blocks(3)[2]);
  }
  ScriptedConnector connector;
  CoreDriver d;
};

TEST(RestartedRequests, RestartRunningRequestsThatComputedOnTheBlock) {
  Three three(fixed_config());
  CoreDriver& d = three.d;
  const StepId step = d.plan().step;
  const std::vector<BlockId> of_1 = d.blocks(1), of_2 = d.blocks(2), of_3 = d.blocks(3);
  const std::vector<BlockId> bad = {of_1[1]};
  StepResult result = not_loaded(bad);
  result.step = step;
  EXPECT_EQ(values(d.core->requests_invalidated_by(result)), Ids({1, 3}));
  const Outcome outcome = d.apply({}, not_loaded(bad));
  ASSERT_EQ(outcome.updates.size(), 1U);
  EXPECT_EQ(outcome.updates[0].id, 2U);
  EXPECT_EQ(d.view(2).status, RequestStatus::running);
  EXPECT_EQ(d.blocks(2), of_2);
  for (const std::uint64_t id : {1U, 3U}) {
    EXPECT_EQ(d.view(id).status, RequestStatus::preempted);
    EXPECT_EQ(d.view(id).num_computed_tokens, 0U);
    EXPECT_TRUE(d.blocks(id).empty());
  }
  EXPECT_TRUE(d.cached(of_1[0])) << "the block before the invalid block is valid";
  for (const std::vector<BlockId>& blocks : {of_1, of_3})
    for (std::size_t i = 1; i < blocks.size(); ++i) EXPECT_FALSE(d.cached(blocks[i])) << i;
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(d.cached(of_2[i])) << i;
  const StepPlan& plan = d.plan();
  ASSERT_EQ(scheduled_ids(plan), Ids({2, 1, 3}));
  for (const ScheduledRequest& one : plan.scheduled) {
    EXPECT_EQ(one.kind == ScheduledKind::resumed, one.id != RequestId{2});
    if (one.id != RequestId{2}) EXPECT_TRUE(one.send_all_tokens) << "the worker has forgotten the requests";
  }
  EXPECT_EQ(plan.scheduled[1].num_computed_tokens, 4U) << "the request finds the first block again";
  d.apply();
}

TEST(RestartedRequests, IgnoreABlockAfterTheComputedTokens) {
  CoreConfig config = fixed_config();
  config.scheduler.max_num_batched_tokens = 8;
  ScriptedConnector connector;
  CoreDriver d(config, {.connector = &connector});
  d.add(1, 14, 20);
  d.step();
  d.plan();
  const std::vector<BlockId> bad = {d.blocks(1)[3]};
  const Outcome outcome = d.apply({}, not_loaded(bad));
  EXPECT_EQ(d.view(1).status, RequestStatus::running) << "this plan has written the block";
  EXPECT_EQ(outcome.updates.size(), 1U);
}

// requests_invalidated_by() receives a result that was not checked before.
TEST(RestartedRequests, RefuseAResultWithUnknownBlocks) {
  Three three(fixed_config());
  CoreDriver& d = three.d;
  const std::vector<BlockId> none = {BlockId{9999}}, bad = {d.blocks(1)[1]};
  StepResult result = not_loaded(none);
  result.step = d.plan().step;
  EXPECT_TRUE(d.core->requests_invalidated_by(result).empty());
  const auto refused = d.core->apply(result, {.now = d.now});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().field, "invalid_blocks");
  result.invalid_blocks = bad;
  EXPECT_FALSE(d.core->requests_invalidated_by(result).empty());
  result.has_connector_output = false;
  EXPECT_TRUE(d.core->requests_invalidated_by(result).empty()) << "the lists are ignored without connector output";
}

TEST(RestartedRequests, IgnoreListsWithoutConnectorOutputWhenTransfersEnd) {
  CoreConfig config = fixed_config();
  NamedTier tier;
  tier.tokens[1] = 8;
  CoreDriver d(config, {.connector = &tier});
  d.add(1, 9, 8);
  d.plan();
  d.apply({});
  ASSERT_EQ(d.view(1).status, RequestStatus::waiting_for_remote_kv);
  ASSERT_FALSE(tier.begun.empty());
  d.plan();
  const std::vector<BlockId> none = {BlockId{9999}};
  const std::vector<RequestId> unknown = {RequestId{77}};
  d.apply({}, {.finished_sending = unknown,
               .finished_receiving = unknown,
               .invalid_blocks = none,
               .failed_receiving = unknown,
               .completions = tier.begun});
  d.plan();
  EXPECT_EQ(d.view(1).status, RequestStatus::running);
  EXPECT_EQ(d.view(1).num_external_computed_tokens, 8);
}

TEST(RestartedRequests, DropTokensInFlightAndPlaceholders) {
  Three three([] {
    CoreConfig config = fixed_config(async_config());
    return config;
  }());
  CoreDriver& d = three.d;
  d.plan();
  d.plan();
  ASSERT_GT(d.view(1).num_output_placeholders, 0);
  const std::size_t num_outputs = d.outputs(1).size();
  const std::vector<BlockId> bad = {d.blocks(1)[0]};
  EXPECT_TRUE(d.apply({}, not_loaded(bad)).updates.empty()) << "all requests hold the block";
  for (const std::uint64_t id : {1U, 2U, 3U}) {
    EXPECT_EQ(d.view(id).num_output_placeholders, 0) << id;
    EXPECT_EQ(d.view(id).status, RequestStatus::preempted);
  }
  EXPECT_TRUE(d.apply().updates.empty()) << "tokens in flight are dropped";
  EXPECT_EQ(d.outputs(1).size(), num_outputs);
  for (int i = 0; i < 60 && d.core->has_work(); ++i) d.step();
  EXPECT_FALSE(d.core->has_work());
  EXPECT_TRUE(d.core->all_blocks_free());
}

TEST(RestartedRequests, KeepTheNextTokenWhenNoOtherTokenIsInFlight) {
  ScriptedConnector connector;
  CoreDriver d(fixed_config(async_config()), {.connector = &connector});
  d.add(1, 6, 20);
  d.step();
  d.plan();
  const std::vector<BlockId> bad = {d.blocks(1).at(0)};
  EXPECT_TRUE(d.apply({}, not_loaded(bad)).updates.empty());
  ASSERT_EQ(d.view(1).status, RequestStatus::preempted);
  EXPECT_EQ(d.step().updates.size(), 1U);
  EXPECT_EQ(d.outputs(1).size(), 2U);
}

// One token of the victim is in flight. The victim waits for it and then continues.
TEST(StaleTokens, AVictimResumesAfterItsTokenInFlightArrives) {
  for (const bool drops : {false, true}) {
    CoreConfig config = async_config(8);
    config.decisions = DecisionProfile::vllm_0_32;
    config.newer.drop_undelivered = drops;
    CoreDriver d(config);
    d.add(1, 8, 10);
    d.add(2, 8, 10);
    std::map<std::uint64_t, std::size_t> num_outputs;
    std::uint32_t num_preemptions = 0;
    const auto count = [&](const Outcome& outcome) {
      for (const Update& update : outcome.updates) num_outputs[update.id] += update.tokens.size();
    };
    d.plan();
    for (int i = 0; i < 60 && d.core->has_work(); ++i) {
      d.plan();
      count(d.apply());
      if (d.known(2)) num_preemptions = std::max(num_preemptions, d.view(2).num_preemptions);
    }
    count(d.apply());
    EXPECT_GT(num_preemptions, 0U);
    EXPECT_FALSE(d.core->has_work());
    EXPECT_EQ(num_outputs[1], 10U);
    EXPECT_EQ(num_outputs[2], 10U) << drops;
    EXPECT_TRUE(d.core->all_blocks_free());
  }
}

// The window has 5 tokens and 12 tokens are computed at the end, so no token sees the first two blocks.
TEST(FinishedRequests, ShowTheConnectorTheWindowOfComputedTokens) {
  CoreConfig config = sync_config();
  SlidingWindowSpec window;
  window.block_size = kBlockSize;
  window.sliding_window = 5;
  config.kv.groups = {{.layer_names = {"window"}, .spec = window, .layer_specs = {}}};
  config.decisions = DecisionProfile::vllm_0_32;
  ScriptedConnector connector;
  CoreDriver d(config, {.connector = &connector});
  d.add(1, 11, 2);
  d.step();
  d.plan();
  const BlockId last = d.blocks(1).at(2);
  connector.log.clear();
  d.apply();
  ASSERT_FALSE(d.known(1));
  EXPECT_EQ(connector.log.at(0),
            fmt::format("finished 1 status={} blocks=[0 0 {}]", static_cast<int>(RequestStatus::finished_length), last.value));
}

// The request waits for its load, and the second block of the load failed.
TEST(RestartedRequests, KeepLoadedBlocksBeforeTheFailureUnlessAWindowHasPassedThem) {
  for (const bool has_window : {false, true}) {
    CoreConfig config = fixed_config();
    if (has_window) {
      SlidingWindowSpec window;
      window.block_size = kBlockSize;
      window.sliding_window = 5;
      config.kv.groups = {{.layer_names = {"window"}, .spec = window, .layer_specs = {}}};
    }
    ScriptedConnector connector;
    connector.matches[RequestId{1}] = {.num_tokens = 8, .load_async = true};
    CoreDriver d(config, {.connector = &connector});
    d.add(1, 14, 2);
    d.plan();
    ASSERT_EQ(d.view(1).status, RequestStatus::waiting_for_remote_kv);
    StepResult result = not_loaded({});
    const std::vector<BlockId> bad = {d.blocks(1).at(1)};
    const std::vector<RequestId> received = {RequestId{1}};
    result.invalid_blocks = bad;
    result.finished_receiving = received;
    d.apply({}, result);
    connector.matches.clear();
    const StepPlan& plan = d.plan();
    ASSERT_EQ(plan.scheduled.size(), 1U);
    EXPECT_EQ(plan.scheduled[0].num_computed_tokens, has_window ? 0U : 4U);
    d.apply();
    for (int i = 0; i < 5 && d.core->has_work(); ++i) d.step();
    EXPECT_FALSE(d.core->has_work());
    EXPECT_TRUE(d.core->all_blocks_free());
  }
}

// A child that waits for its input shares its parent's blocks and releases them.
TEST(RestartedRequests, ReleaseSharedBlocksOfAForkThatWaitsForInput) {
  ScriptedConnector connector;
  CoreDriver d(fixed_config(), {.connector = &connector});
  d.add(1, 14, 20);
  d.step();
  ASSERT_TRUE(
      d.core->fork(RequestId{1}, {.id = RequestId{2}, .arrival_time = 2.0, .resumable = true, .waits_for_input = true}, {.now = d.now})
          .has_value());
  ASSERT_EQ(d.view(2).status, RequestStatus::waiting_for_input);
  ASSERT_EQ(d.blocks(2).size(), 4U);
  d.plan();
  const std::vector<BlockId> bad = {d.blocks(1).at(1)};
  d.apply({}, not_loaded(bad));
  EXPECT_TRUE(d.blocks(2).empty());
  EXPECT_EQ(d.view(2).status, RequestStatus::waiting_for_input);
  EXPECT_EQ(d.view(2).num_computed_tokens, 0U);
  d.core->finish(RequestId{2}, RequestStatus::finished_aborted);
  d.core->finish(RequestId{1}, RequestStatus::finished_aborted);
  EXPECT_TRUE(d.core->all_blocks_free());
}

TEST(RestartedRequests, ReleaseSharedBlocksOfAForkThatHasNotRun) {
  ScriptedConnector connector;
  CoreDriver d(fixed_config(), {.connector = &connector});
  d.add(1, 14, 20);
  d.step();
  d.plan();
  must_fork(d, 1, 2);
  ASSERT_EQ(d.blocks(2).size(), 4U);
  const std::vector<BlockId> bad = {d.blocks(1).at(1)};
  d.apply({}, not_loaded(bad));
  EXPECT_TRUE(d.blocks(2).empty());
  EXPECT_EQ(d.view(2).num_computed_tokens, 0U);
  d.plan();
  EXPECT_EQ(d.scheduled(2), 3U) << "a lookup finds the blocks that request 1 recomputes";
  d.apply();
}

// The last shared block is not full, and one request has a private copy since.
TEST(RestartedRequests, RestartRequestsThatRunOnACopyOfTheBlock) {
  ScriptedConnector connector;
  CoreDriver d(fixed_config(async_config()), {.connector = &connector});
  d.add(1, 6, 20);
  d.step();
  StepResult result = not_loaded({});
  result.step = d.plan().step;
  must_fork(d, 1, 2);
  const StepPlan& plan = d.plan();
  ASSERT_EQ(plan.copies.size(), 1U);
  const std::vector<BlockId> bad = {plan.copies[0].source};
  ASSERT_NE(d.blocks(1).at(1), d.blocks(2).at(1));
  result.invalid_blocks = bad;
  Ids invalidated = values(d.core->requests_invalidated_by(result));
  std::ranges::sort(invalidated);
  EXPECT_EQ(invalidated, Ids({1, 2}));
}

// The load has failed in part and is still in progress.
TEST(FailedLoads, ForgetARequestThatEndsWhileItsLoadIsInProgress) {
  ScriptedConnector connector;
  connector.matches[RequestId{1}] = {.num_tokens = 8, .load_async = true};
  connector.keeps_blocks.insert(RequestId{1});
  CoreConfig config = sync_config();
  config.kv_load_failure = KvLoadFailurePolicy::recompute;
  CoreDriver d(config, {.connector = &connector});
  d.add(1, 14, 2);
  d.plan();
  const std::vector<BlockId> bad = {d.blocks(1).at(1)};
  d.apply({}, not_loaded(bad));
  EXPECT_EQ(values(d.snapshot().failed_receiving), Ids{1});
  d.core->finish(RequestId{1}, RequestStatus::finished_aborted);
  EXPECT_TRUE(d.known(1)) << "its blocks are still in transfer";
  EXPECT_TRUE(d.snapshot().failed_receiving.empty());
}

// A host that cannot report the failed blocks reports the requests instead.
TEST(FailedReceiving, RestartOrEndARequestThatWaitsForItsLoad) {
  for (const KvLoadFailurePolicy policy : {KvLoadFailurePolicy::recompute, KvLoadFailurePolicy::fail}) {
    ScriptedConnector connector;
    for (const std::uint64_t id : {1U, 2U}) connector.matches[RequestId{id}] = {.num_tokens = 8, .load_async = true};
    CoreConfig config = sync_config();
    config.kv_load_failure = policy;
    CoreDriver d(config, {.connector = &connector});
    d.add(1, 14, 2);
    d.add(2, 14, 2);
    d.add(3, 14, 9);
    d.plan();
    const std::vector<RequestId> both = {RequestId{1}, RequestId{2}}, failed = {RequestId{1}, RequestId{3}, RequestId{77}};
    const Outcome outcome = d.apply({}, {.step = {}, .has_connector_output = true, .finished_receiving = both, .failed_receiving = failed});
    const bool ends = policy == KvLoadFailurePolicy::fail;
    EXPECT_EQ(d.known(1), !ends);
    EXPECT_TRUE(d.known(3)) << "request 3 does not wait for a load";
    ASSERT_EQ(outcome.updates.size(), ends ? 2U : 1U);
    if (ends) {
      const auto& ended = outcome.updates[0].id == 1 ? outcome.updates[0] : outcome.updates[1];
      EXPECT_EQ(ended.status, RequestStatus::finished_error);
    }
    connector.matches.clear();
    const StepPlan& plan = d.plan();
    ASSERT_EQ(plan.scheduled.size(), ends ? 2U : 3U);
    for (const ScheduledRequest& one : plan.scheduled) {
      if (one.id == RequestId{1}) EXPECT_EQ(one.num_computed_tokens, 0U);
      if (one.id == RequestId{2}) EXPECT_EQ(one.num_computed_tokens, 8U);
    }
    d.apply();
  }
}

}  // namespace
}  // namespace quire::test
