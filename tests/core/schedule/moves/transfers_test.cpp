// Tests what the workers of a connector report: finished transfers and failed loads. Also tests the order in which the connector is
// notified.
#include "core/schedule/core_driver.h"
#include "support/scripted_connector.h"

namespace quire::test {
namespace {

using RequestIds = std::vector<RequestId>;

StepResult transfers(const std::vector<BlockId>& invalid, const RequestIds& received = {}, const RequestIds& sent = {}) {
  return {.step = {}, .has_connector_output = true, .finished_sending = sent, .finished_receiving = received, .invalid_blocks = invalid};
}

CoreConfig recomputing(CoreConfig config = sync_config()) {
  config.kv_load_failure = KvLoadFailurePolicy::recompute;
  return config;
}

// Makes a connector that has a prefix of 8 of the 10 tokens of requests 1 and 2.
ScriptedConnector with_prefixes(bool load_async) {
  ScriptedConnector connector;
  connector.matches[RequestId{1}] = {.num_tokens = 8, .load_async = load_async};
  connector.matches[RequestId{2}] = {.num_tokens = 8, .load_async = load_async};
  return connector;
}

TEST(Transfers, NotifyTheConnectorOfAStepInOrder) {
  ScriptedConnector connector = with_prefixes(false);
  EXPECT_FALSE(CoreDriver(sync_config()).core->has_connector());
  CoreDriver d(sync_config(), {.connector = &connector});
  EXPECT_TRUE(d.core->has_connector());
  d.add(1, 10, 1);
  d.plan();
  EXPECT_EQ(connector.take_log(), (std::vector<std::string>{"match 1 local=0", "allocated 1 blocks=[1 2 3] external=8", "planned 2"}));
  const Outcome outcome = d.apply({}, transfers({}));
  EXPECT_EQ(connector.take_log(), (std::vector<std::string>{"finished 1 status=7 blocks=[1 2 3]", "step_output"}));
  EXPECT_EQ(outcome.updates.at(0).num_cached_tokens, 8);
  EXPECT_EQ(outcome.updates.at(0).num_external_computed_tokens, 8);
  ASSERT_TRUE(outcome.stats->connector_prefix_cache);
  EXPECT_EQ(outcome.stats->connector_prefix_cache->requests, 1U);
  EXPECT_EQ(outcome.stats->connector_prefix_cache->queries, 10U);
  EXPECT_EQ(outcome.stats->connector_prefix_cache->hits, 8U);
  EXPECT_EQ(d.core->counters().external_query_tokens, 10U);
  EXPECT_EQ(d.core->counters().external_hit_tokens, 8U);
  d.step();
  EXPECT_EQ(connector.take_log(), std::vector<std::string>{"planned 0"})
      << "the core does not notify the connector without a connector output";
}

TEST(Transfers, Trap26PromoteAReceivedPrefixInTheNextPlan) {
  ScriptedConnector connector = with_prefixes(true);
  CoreDriver d(sync_config(), {.connector = &connector});
  d.add(1, 10, 5);
  d.step();
  EXPECT_EQ(d.view(1).status, RequestStatus::waiting_for_remote_kv);
  EXPECT_EQ(d.view(1).num_computed_tokens, 8U);
  const RequestIds received = {RequestId{1}};
  d.plan();
  connector.log.clear();
  d.apply({}, transfers({}, received));
  EXPECT_EQ(d.view(1).status, RequestStatus::waiting_for_remote_kv) << "the waiting loop promotes the request";
  EXPECT_FALSE(d.cached(d.blocks(1).at(0)));
  d.plan();
  EXPECT_EQ(d.scheduled(1), 2U);
  EXPECT_TRUE(d.cached(d.blocks(1).at(0)));
  EXPECT_EQ(connector.take_log(), (std::vector<std::string>{"step_output", "allocated 1 blocks=[1 2 3] external=0", "planned 2"}));
  EXPECT_EQ(d.apply().updates.at(0).num_cached_tokens, 8);
}

TEST(Transfers, Trap27FailByDefaultAndReportFailedRequestsLast) {
  ScriptedConnector connector = with_prefixes(false);
  CoreDriver d(sync_config(), {.connector = &connector});
  for (std::uint64_t id = 1; id <= 3; ++id) d.add(id, 10, 5);
  d.plan();
  const BlockId bad = d.blocks(1).at(1);
  const BlockId good = d.blocks(1).at(0);
  const BlockId after = d.blocks(1).at(1);
  EXPECT_TRUE(d.cached(bad));
  const Outcome outcome = d.apply({}, transfers({bad}));
  ASSERT_EQ(outcome.updates.size(), 3U);
  EXPECT_EQ(outcome.updates[0].id, 2U);
  EXPECT_EQ(outcome.updates[1].id, 3U);
  const Update& failed = outcome.updates[2];
  EXPECT_EQ(failed.id, 1U);
  EXPECT_EQ(failed.result_index, UINT32_MAX);
  EXPECT_TRUE(failed.tokens.empty());
  EXPECT_TRUE(failed.finished);
  EXPECT_EQ(failed.status, RequestStatus::finished_error);
  EXPECT_EQ(failed.reason, FinishReason::error);
  EXPECT_EQ(failed.num_cached_tokens, 8);
  EXPECT_EQ(failed.num_external_computed_tokens, 0);
  EXPECT_EQ(failed.events.size(), 2U);
  EXPECT_EQ(outcome.retired, std::vector<std::uint64_t>{1});
  EXPECT_TRUE(d.cached(good));
  EXPECT_FALSE(d.cached(bad)) << "the block and blocks that depend on it are evicted";
  EXPECT_FALSE(d.cached(after));
  EXPECT_EQ(values(d.snapshot().running), (std::vector<std::uint64_t>{2, 3}));
}

TEST(Transfers, Trap27RecomputeFromTheFirstInvalidBlockAndEvictNothing) {
  ScriptedConnector connector = with_prefixes(false);
  CoreDriver d(recomputing(), {.connector = &connector});
  d.add(1, 10, 5);
  d.add(2, 10, 5);
  d.plan();
  const std::vector<BlockId> blocks = d.blocks(1);
  const Outcome outcome = d.apply({}, transfers({blocks.at(1)}));
  ASSERT_EQ(outcome.updates.size(), 1U) << "its token is dropped";
  EXPECT_EQ(outcome.updates[0].id, 2U);
  EXPECT_EQ(d.view(1).num_computed_tokens, 4U);
  EXPECT_EQ(d.view(1).num_external_computed_tokens, 4);
  EXPECT_EQ(d.view(1).status, RequestStatus::running);
  EXPECT_TRUE(d.cached(blocks.at(1)));
  d.plan();
  EXPECT_EQ(d.scheduled(1), 6U);
  d.apply();
}

TEST(Transfers, Trap27IgnoreAnInvalidBlockOfTokensOfThisStep) {
  ScriptedConnector connector = with_prefixes(false);
  CoreDriver d(recomputing(), {.connector = &connector});
  d.add(1, 10, 5);
  d.plan();
  const Outcome outcome = d.apply({}, transfers({d.blocks(1).at(2)}));
  EXPECT_EQ(outcome.updates.size(), 1U);
  EXPECT_EQ(d.view(1).num_computed_tokens, 10U);
}

TEST(Transfers, Trap27RecomputeASharedInvalidBlockOnce) {
  ScriptedConnector connector;
  connector.matches[RequestId{1}] = {.num_tokens = 8, .load_async = false};
  CoreDriver d(recomputing(), {.connector = &connector});
  const Tokens prompt = CoreDriver::prompt(1, 10);
  d.add(CoreDriver::request(1, prompt, 5));
  d.add(CoreDriver::request(2, prompt, 5));
  d.plan();
  ASSERT_EQ(d.blocks(1).at(1), d.blocks(2).at(1)) << "request 2 finds the block that request 1 loads";
  const Outcome outcome = d.apply({}, transfers({d.blocks(1).at(1)}));
  EXPECT_TRUE(outcome.updates.empty()) << "both requests are skipped";
  EXPECT_EQ(d.view(1).num_computed_tokens, 4U);
  EXPECT_EQ(d.view(2).num_computed_tokens, 8U) << "request 2 computes only the tokens of this step";
  d.plan();
  EXPECT_EQ(d.scheduled(1), 6U);
  EXPECT_EQ(d.scheduled(2), 2U);
  d.apply();
}

TEST(Transfers, Trap27RecomputeAFailedAsyncLoadAfterItCompletes) {
  ScriptedConnector connector = with_prefixes(true);
  CoreDriver d(recomputing(), {.connector = &connector});
  d.add(1, 10, 5);
  d.step();
  d.plan();
  const std::vector<BlockId> blocks = d.blocks(1);
  d.apply({}, transfers({blocks.at(1)}));
  EXPECT_EQ(values(d.snapshot().failed_receiving), std::vector<std::uint64_t>{1});
  EXPECT_EQ(d.view(1).num_computed_tokens, 4U);
  d.plan();
  const RequestIds received = {RequestId{1}};
  d.apply({}, transfers({}, received));
  d.plan();
  EXPECT_EQ(d.scheduled(1), 6U);
  EXPECT_TRUE(d.cached(blocks.at(0)));
  EXPECT_TRUE(d.snapshot().failed_receiving.empty());
  d.apply();
}

TEST(Transfers, Trap27HoldBlocksOfAFailedAsyncLoadUntilItCompletes) {
  ScriptedConnector connector = with_prefixes(true);
  CoreDriver d(sync_config(), {.connector = &connector});
  d.add(1, 10, 5);
  d.step();
  d.plan();
  const Outcome outcome = d.apply({}, transfers({d.blocks(1).at(0)}));
  EXPECT_EQ(outcome.updates.at(0).status, RequestStatus::finished_error);
  EXPECT_EQ(outcome.updates.at(0).num_cached_tokens, -1);
  EXPECT_TRUE(d.known(1));
  EXPECT_FALSE(d.core->all_blocks_free());
  d.plan();
  const RequestIds received = {RequestId{1}};
  EXPECT_EQ(d.apply({}, transfers({}, received)).retired, std::vector<std::uint64_t>{1});
  EXPECT_TRUE(d.core->all_blocks_free());
}

TEST(Transfers, FreeBlocksImmediatelyWhenAFailedLoadCompletesInTheSameResult) {
  ScriptedConnector connector = with_prefixes(true);
  CoreDriver d(sync_config(), {.connector = &connector});
  d.add(1, 10, 5);
  d.step();
  d.plan();
  const RequestIds received = {RequestId{1}};
  EXPECT_EQ(d.apply({}, transfers({d.blocks(1).at(0)}, received)).retired, std::vector<std::uint64_t>{1});
  EXPECT_TRUE(d.core->all_blocks_free());
}

TEST(Transfers, Trap33EndFailedRequestsInTheOrderOfTheScan) {
  ScriptedConnector connector = with_prefixes(false);
  connector.matches[RequestId{3}] = {.num_tokens = 8, .load_async = true};
  CoreDriver d(sync_config(), {.connector = &connector});
  for (std::uint64_t id = 1; id <= 3; ++id) d.add(id, 10, 5);
  d.plan();
  const Outcome outcome = d.apply({}, transfers({d.blocks(2).at(0), d.blocks(3).at(0), d.blocks(1).at(0)}));
  ASSERT_EQ(outcome.updates.size(), 3U);
  EXPECT_EQ(outcome.updates[0].id, 3U) << "requests with asynchronous loads come first";
  EXPECT_EQ(outcome.updates[1].id, 1U);
  EXPECT_EQ(outcome.updates[2].id, 2U);
}

TEST(Transfers, Trap33LetTheConnectorOrderFailedRequests) {
  ScriptedConnector connector = with_prefixes(false);
  connector.matches[RequestId{3}] = {.num_tokens = 8, .load_async = true};
  connector.reverses_failed = true;
  CoreDriver d(sync_config(), {.connector = &connector});
  for (std::uint64_t id = 1; id <= 3; ++id) d.add(id, 10, 5);
  d.plan();
  const std::vector<BlockId> bad = {d.blocks(2).at(0), d.blocks(3).at(0), d.blocks(1).at(0)};
  connector.log.clear();
  const Outcome outcome = d.apply({}, transfers(bad));
  ASSERT_EQ(outcome.updates.size(), 3U);
  EXPECT_EQ(outcome.updates[0].id, 3U) << "the core reports in one order";
  EXPECT_EQ(outcome.updates[1].id, 1U);
  ASSERT_GE(connector.log.size(), 4U);
  EXPECT_EQ(connector.log[0], "order_failed 1 of 3");
  EXPECT_TRUE(connector.log[1].starts_with("finished 2 ")) << "the core finishes requests in another order";
  EXPECT_TRUE(connector.log[3].starts_with("finished 3 "));
}

TEST(Transfers, ProcessReceivedRequestsBeforeSentRequests) {
  ScriptedConnector connector;
  connector.keeps_blocks = {RequestId{1}, RequestId{2}};
  connector.matches[RequestId{2}] = {.num_tokens = 8, .load_async = true};
  CoreDriver d(sync_config(), {.connector = &connector});
  d.add(1, 10, 1);
  d.add(2, 10, 1);
  d.step();
  d.core->finish(RequestId{2}, RequestStatus::finished_aborted);
  d.plan();
  const RequestIds both = {RequestId{1}, RequestId{2}, RequestId{1}};
  const RequestIds received = {RequestId{2}, RequestId{2}};
  EXPECT_EQ(d.apply({}, transfers({}, received, both)).retired, (std::vector<std::uint64_t>{2, 1})) << "a duplicate entry has no effect";
  EXPECT_TRUE(d.core->all_blocks_free());
}

TEST(Transfers, RefuseFailedLoadsWithSeveralCacheGroups) {
  CoreConfig config = sync_config();
  SlidingWindowSpec window;
  window.block_size = kBlockSize;
  window.sliding_window = 8;
  config.kv.groups.push_back({.layer_names = {"window"}, .spec = window, .layer_specs = {}});
  ScriptedConnector connector;
  CoreDriver d(config, {.connector = &connector});
  d.add(1, 10, 5);
  d.plan();
  const BlockId bad[] = {BlockId{1}};
  const auto applied = d.core->apply({.step = StepId{0}, .has_connector_output = true, .invalid_blocks = bad});
  ASSERT_FALSE(applied.has_value());
  EXPECT_EQ(applied.error().code, ErrorCode::unsupported);
  d.apply();
}

TEST(Transfers, CountRequestsThatWaitForTransfers) {
  ScriptedConnector connector = with_prefixes(true);
  connector.keeps_blocks = {RequestId{3}};
  CoreDriver d(sync_config(), {.connector = &connector});
  const auto num_awaiting = [&] { return d.core->counters().num_awaiting_transfers; };
  d.add(1, 10, 5);
  d.add(2, 10, 5);
  d.add(3, 10, 1);
  d.step();
  EXPECT_EQ(num_awaiting(), 3U) << "two requests load and one finished request sends";
  EXPECT_FALSE(d.core->all_blocks_free());
  d.plan();
  const RequestIds received = {RequestId{1}}, sent = {RequestId{3}};
  d.apply({}, transfers({}, received, sent));
  EXPECT_EQ(num_awaiting(), 1U);
  d.core->check_invariants();
  d.step();
  d.core->finish(RequestId{2}, RequestStatus::finished_aborted);
  EXPECT_EQ(num_awaiting(), 1U) << "the request is aborted and its blocks are still loading";
  d.core->check_invariants();
  d.plan();
  const RequestIds late = {RequestId{2}};
  d.apply({}, transfers({}, late));
  EXPECT_EQ(num_awaiting(), 0U);
}

}  // namespace
}  // namespace quire::test
