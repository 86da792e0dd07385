// Tests which blocks a child shares when a connector loads blocks, and how the connector is notified.
#include <gtest/gtest.h>

#include "core/schedule/core_driver.h"
#include "core/schedule/requests/forking.h"
#include "support/scripted_connector.h"

namespace quire::test {
namespace {

TEST(ForksWithConnectors, ShareLoadedBlocksWithoutALookup) {
  ScriptedConnector connector;
  CoreDriver d(sync_config(), {.connector = &connector});
  connector.matches[RequestId{1}] = {.num_tokens = 8, .load_async = false};
  d.add(1, 11, 20);
  d.step();
  connector.log.clear();
  must_fork(d, 1, 2);
  EXPECT_EQ(d.blocks(2), d.blocks(1));
  EXPECT_EQ(d.view(2).num_computed_tokens, 11U);
  EXPECT_EQ(scheduled_ids(d.plan()), Ids({1, 2}));
  EXPECT_EQ(d.scheduled(2), 1U);
  const std::vector<std::string> log = connector.take_log();
  EXPECT_TRUE(std::ranges::none_of(log, [](const std::string& line) { return line.starts_with("match"); }));
  EXPECT_TRUE(
      std::ranges::any_of(log, [](const std::string& line) { return line.starts_with("allocated 2 ") && line.ends_with("external=0"); }));
  d.apply();
}

TEST(ForksWithConnectors, DoNotShareBlocksThatAreBeingLoaded) {
  ScriptedConnector connector;
  CoreDriver d(sync_config(), {.connector = &connector});
  connector.matches[RequestId{1}] = {.num_tokens = 8, .load_async = true};
  d.add(1, 11, 20);
  EXPECT_TRUE(d.plan().scheduled.empty());
  must_fork(d, 1, 2);
  EXPECT_TRUE(d.blocks(2).empty());
  d.apply();
  connector.matches[RequestId{2}] = {};  // the match is unknown: query again
  EXPECT_TRUE(d.plan().scheduled.empty());
  const RequestId received[] = {RequestId{1}};
  d.apply({}, {.has_connector_output = true, .finished_receiving = received});
  must_fork(d, 1, 3);
  EXPECT_TRUE(d.blocks(3).empty()) << "the blocks were received but are not yet in use";
  connector.matches.clear();
  d.plan();
  EXPECT_EQ(d.scheduled(1), 3U);
  EXPECT_EQ(d.blocks(2)[0], d.blocks(1)[0]) << "the block is found by its hash";
  EXPECT_EQ(d.blocks(3)[1], d.blocks(1)[1]);
  d.apply();
}

// The parent's blocks were not loaded. The parent is cut or ends, and a child that has not run begins as if it were added.
TEST(ForksWithConnectors, ReleaseSharedBlocksWhoseLoadFailed) {
  for (const KvLoadFailurePolicy policy : {KvLoadFailurePolicy::fail, KvLoadFailurePolicy::recompute}) {
    ScriptedConnector connector;
    CoreConfig config = sync_config();
    config.kv_load_failure = policy;
    CoreDriver d(config, {.connector = &connector});
    connector.matches[RequestId{1}] = {.num_tokens = 8, .load_async = false};
    d.add(1, 11, 20);
    d.plan();
    must_fork(d, 1, 2);
    const std::vector<BlockId> bad{d.blocks(1)[1]};
    EXPECT_EQ(d.blocks(2)[1], bad[0]);
    d.apply({}, {.has_connector_output = true, .invalid_blocks = bad});
    EXPECT_TRUE(d.blocks(2).empty());
    EXPECT_EQ(d.view(2).num_computed_tokens, 0U);
    d.core->check_invariants();
    while (d.known(2)) d.step();
  }
}

TEST(ForksWithConnectors, NotifyTheConnectorWithoutALookupWhenTheRequestLoadsNothing) {
  ScriptedConnector connector;
  CoreDriver d(sync_config(), {.connector = &connector});
  connector.matches[RequestId{1}] = {.num_tokens = 8, .load_async = true};
  const Tokens prompt = CoreDriver::prompt(1, 11);
  NewRequest request = CoreDriver::request(1, prompt, 20);
  request.loads_nothing = true;
  d.add(request);
  d.plan();
  EXPECT_EQ(d.scheduled(1), 11U);
  EXPECT_EQ(connector.take_log(), (std::vector<std::string>{"allocated 1 blocks=[1 2 3] external=0", "planned 11"}));
  d.apply();
}

// A child of a waiting session also waits, with its shared blocks. A request that needs blocks while nothing runs frees these blocks.
TEST(ForksOfSessions, ForkAWaitingSessionIntoAWaitingSession) {
  CoreDriver d(sync_config());
  const Tokens prompt = CoreDriver::prompt(1, 6);
  NewRequest request = CoreDriver::request(1, prompt, 3);
  request.resumable = true;
  d.add(request);
  d.step({{1, {kStop}}});
  const ForkRequest child{.id = RequestId{2}, .arrival_time = 2.0, .resumable = true, .waits_for_input = true};
  ASSERT_TRUE(d.core->fork(RequestId{1}, child, {.now = d.now}).has_value());
  EXPECT_EQ(d.view(2).status, RequestStatus::waiting_for_input);
  EXPECT_EQ(d.blocks(2), d.blocks(1));
  EXPECT_EQ(d.core->counters().num_unfinished, 0) << "both sessions wait";
  d.step();
  EXPECT_EQ(d.scheduled(2), 0U);
  const Tokens input{61, 62};
  const SessionInput more{.tokens = input, .arrival_time = 9.0};
  ASSERT_TRUE(d.core->continue_session(RequestId{2}, &more, {.now = d.now}).has_value());
  const StepPlan& plan = d.plan();
  EXPECT_EQ(d.scheduled(2), 2U);
  EXPECT_EQ(plan.copies.size(), 1U) << "the block that both sessions write to is copied";
  d.apply();
  EXPECT_EQ(d.blocks(1).size(), 2U);
  EXPECT_EQ(d.view(1).status, RequestStatus::waiting_for_input);
  const auto refused = d.core->fork(RequestId{1}, {.id = RequestId{3}, .waits_for_input = true}, {.now = d.now});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().field, "waits_for_input");
}

}  // namespace
}  // namespace quire::test
