// Tests requests that are finished from outside, and finished requests whose blocks are still in use.
#include "core/schedule/core_driver.h"
#include "support/scripted_connector.h"

namespace quire::test {
namespace {

TEST(ForgetBlocks, RemovesTheBlocksFromThePrefixCache) {
  ScriptedConnector connector;
  CoreDriver d(sync_config(), {.connector = &connector});
  const Tokens prompt = CoreDriver::prompt(1, 12);
  d.add(CoreDriver::request(1, prompt, 5));
  d.step();
  d.add(CoreDriver::request(2, prompt, 5));
  d.step();
  ASSERT_EQ(d.view(2).num_cached_tokens, 8) << "one token of the last block must be computed";
  (void)connector.take_log();
  d.core->forget_blocks(RequestId{9});
  d.core->forget_blocks(RequestId{1});
  EXPECT_EQ(connector.take_log(), std::vector<std::string>{"forget 1"});
  for (const BlockId block : d.blocks(1)) EXPECT_FALSE(d.cached(block));
  d.core->check_invariants();
  d.core->finish(RequestId{1}, RequestStatus::finished_error);
  d.add(CoreDriver::request(3, prompt, 5));
  d.step();
  EXPECT_EQ(d.view(3).num_cached_tokens, 0);
}

TEST(Finish, EndsRequestsInAnyState) {
  CoreConfig config = sync_config();
  config.scheduler.max_num_seqs = 1;
  CoreDriver d(config);
  d.add(1, 3, 5);
  d.add(2, 3, 5);
  d.step();
  EXPECT_EQ(d.core->finish(RequestId{2}, RequestStatus::finished_aborted), FinishEffect::retired);
  EXPECT_EQ(d.core->finish(RequestId{2}, RequestStatus::finished_aborted), FinishEffect::unknown);
  EXPECT_EQ(d.core->finish(RequestId{9}, RequestStatus::finished_aborted), FinishEffect::unknown);
  EXPECT_EQ(d.core->finish(RequestId{1}, RequestStatus::finished_aborted), FinishEffect::retired);
  d.core->check_invariants();
  EXPECT_FALSE(d.core->has_work());
  EXPECT_TRUE(d.core->all_blocks_free());
  EXPECT_EQ(values(d.plan().finished), (std::vector<std::uint64_t>{2, 1})) << "the plan lists requests in the order in which they ended";
}

TEST(Finish, KeepsARequestOfAnOutstandingPlanAndDropsItsToken) {
  CoreDriver d(sync_config());
  d.add(1, 3, 5);
  d.add(2, 3, 5);
  d.plan();
  EXPECT_EQ(d.core->finish(RequestId{1}, RequestStatus::finished_aborted), FinishEffect::in_flight);
  EXPECT_EQ(d.core->finish(RequestId{1}, RequestStatus::finished_aborted), FinishEffect::unknown);
  EXPECT_FALSE(d.known(1));
  EXPECT_EQ(d.core->counters().num_free_blocks, 30U) << "its block is free immediately";
  const Outcome outcome = d.apply();
  ASSERT_EQ(outcome.updates.size(), 1U);
  EXPECT_EQ(outcome.updates[0].id, 2U);
  EXPECT_EQ(outcome.updates[0].result_index, 1U);
  EXPECT_EQ(outcome.retired, std::vector<std::uint64_t>{1});
}

TEST(Finish, Trap33EndsSeveralRequestsInTheGivenOrder) {
  CoreDriver d(sync_config());
  for (std::uint64_t id = 1; id <= 4; ++id) d.add(id, 4, 5);
  d.step();
  d.add(5, 4, 5);
  const BlockId of_3 = d.blocks(3).at(0);
  const BlockId of_1 = d.blocks(1).at(0);
  const RequestId ids[] = {RequestId{3}, RequestId{9}, RequestId{5}, RequestId{1}, RequestId{3}};
  std::vector<RequestId> finished;
  d.core->finish(ids, RequestStatus::finished_aborted, finished);
  d.core->check_invariants();
  EXPECT_EQ(values(finished), Ids({3, 5, 1})) << "each known request ends once";
  EXPECT_TRUE(d.snapshot().waiting.empty());
  EXPECT_EQ(values(d.snapshot().running), (std::vector<std::uint64_t>{2, 4}));
  const std::vector<BlockId> free = d.snapshot().free_blocks;
  EXPECT_LT(std::ranges::find(free, of_3), std::ranges::find(free, of_1)) << "blocks are reused in the order in which their requests ended";
  const StepPlan& plan = d.plan();
  EXPECT_EQ(values(plan.finished), Ids({3, 5, 1}));
  EXPECT_EQ(plan.released.size(), 2U);
  EXPECT_EQ(d.apply().retired, Ids({3, 5, 1}));
}

TEST(Finish, KeepsBlocksUntilTheConnectorHasSentThem) {
  ScriptedConnector connector;
  connector.keeps_blocks = {RequestId{1}};
  CoreDriver d(sync_config(), {.connector = &connector});
  d.add(1, 6, 1);
  d.plan();
  connector.log.clear();
  const Outcome outcome = d.apply();
  EXPECT_TRUE(outcome.updates.at(0).finished);
  EXPECT_TRUE(outcome.retired.empty());
  EXPECT_EQ(connector.log, std::vector<std::string>{"finished 1 status=7 blocks=[1 2]"});
  EXPECT_TRUE(d.known(1));
  EXPECT_EQ(d.view(1).status, RequestStatus::finished_length);
  EXPECT_FALSE(d.core->all_blocks_free());
  EXPECT_FALSE(d.core->has_work());
  EXPECT_EQ(d.core->finish(RequestId{1}, RequestStatus::finished_aborted), FinishEffect::unknown);

  d.plan();
  const RequestId sent[] = {RequestId{1}};
  const Outcome later = d.apply({}, {.step = {}, .has_connector_output = true, .finished_sending = sent});
  EXPECT_EQ(later.retired, std::vector<std::uint64_t>{1});
  EXPECT_TRUE(d.core->all_blocks_free());
}

TEST(Finish, Trap28RemovesSkippedWindowBlocksBeforeTheConnectorSeesTheBlocks) {
  CoreConfig config = sync_config();
  SlidingWindowSpec spec;
  spec.block_size = kBlockSize;
  spec.sliding_window = 5;
  config.kv.groups = {{.layer_names = {"layer"}, .spec = spec, .layer_specs = {}}};
  config.scheduler.max_num_batched_tokens = 16;
  ScriptedConnector connector;
  CoreDriver d(config, {.connector = &connector});
  d.add(1, 16, 1);
  d.plan();
  connector.log.clear();
  d.apply();
  // The request has 17 tokens. The tokens that token 17 attends to begin at 12.
  EXPECT_EQ(connector.log, std::vector<std::string>{"finished 1 status=7 blocks=[0 0 0 4]"});
}

TEST(Finish, Trap28HoldsTheBlocksOfAnAbortedRequestUntilItsLoadIsComplete) {
  ScriptedConnector connector;
  connector.matches[RequestId{1}] = {.num_tokens = 8, .load_async = true};
  CoreDriver d(sync_config(), {.connector = &connector});
  d.add(1, 10, 5);
  d.step();
  EXPECT_EQ(d.view(1).status, RequestStatus::waiting_for_remote_kv);
  const auto num_free = d.core->counters().num_free_blocks;
  EXPECT_EQ(d.core->finish(RequestId{1}, RequestStatus::finished_aborted), FinishEffect::in_flight);
  d.core->check_invariants();
  EXPECT_EQ(d.core->counters().num_free_blocks, num_free);
  EXPECT_FALSE(d.core->has_work());
  EXPECT_TRUE(d.known(1));

  d.plan();
  const RequestId received[] = {RequestId{1}};
  const Outcome outcome = d.apply({}, {.step = {}, .has_connector_output = true, .finished_receiving = received});
  EXPECT_EQ(outcome.retired, std::vector<std::uint64_t>{1});
  EXPECT_TRUE(d.core->all_blocks_free());
}

// In a pipeline the token in flight arrives while its request, preempted by a reset, loads its blocks again. vLLM frees the blocks
// immediately.
TEST(Finish, HoldsTheBlocksOfALoadThatALateTokenStops) {
  ScriptedConnector connector;
  CoreConfig config = sync_config();
  config.limits.max_outstanding_plans = 2;
  CoreDriver d(config, {.connector = &connector});
  d.add(1, 10, 1);
  d.plan();
  ASSERT_TRUE(d.core->reset_prefix_cache(true).value());
  connector.matches[RequestId{1}] = {.num_tokens = 8, .load_async = true};
  d.plan();
  ASSERT_EQ(d.view(1).status, RequestStatus::waiting_for_remote_kv);
  EXPECT_TRUE(d.apply().updates.at(0).finished);
  d.core->check_invariants();
  EXPECT_TRUE(d.known(1));
  EXPECT_FALSE(d.core->all_blocks_free()) << "the transfer still writes to the blocks";

  const RequestId received[] = {RequestId{1}};
  const Outcome outcome = d.apply({}, {.step = {}, .has_connector_output = true, .finished_receiving = received});
  EXPECT_EQ(outcome.retired, std::vector<std::uint64_t>{1});
  EXPECT_TRUE(d.core->all_blocks_free());
}

TEST(Finish, Trap28FreesTheBlocksImmediatelyWhenTheLoadIsComplete) {
  ScriptedConnector connector;
  connector.matches[RequestId{1}] = {.num_tokens = 8, .load_async = true};
  CoreDriver d(sync_config(), {.connector = &connector});
  d.add(1, 10, 5);
  d.plan();
  const RequestId received[] = {RequestId{1}};
  d.apply();
  d.plan();
  d.apply({}, {.step = {}, .has_connector_output = true, .finished_receiving = received});
  EXPECT_EQ(values(d.snapshot().finished_receiving), std::vector<std::uint64_t>{1});
  EXPECT_EQ(d.core->finish(RequestId{1}, RequestStatus::finished_aborted), FinishEffect::retired);
  EXPECT_TRUE(d.core->all_blocks_free());
}

TEST(Finish, RemovesAWaitingRequestFromAPriorityQueue) {
  CoreConfig config = sync_config();
  config.scheduler.policy = SchedulingPolicy::priority;
  CoreDriver d(config);
  for (std::uint64_t id = 1; id <= 5; ++id) d.add(id, 3, 5);
  const RequestId ids[] = {RequestId{4}, RequestId{1}};
  std::vector<RequestId> finished;
  d.core->finish(ids, RequestStatus::finished_aborted, finished);
  EXPECT_EQ(values(d.snapshot().waiting), (std::vector<std::uint64_t>{2, 3, 5}));
}

}  // namespace
}  // namespace quire::test
