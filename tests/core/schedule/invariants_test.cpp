// Tests the rules of use inside the scheduler and for its clients. A violation stops the program with a message. There is one test per
// class.
#include <gtest/gtest.h>

#include <utility>

#include "core/schedule/core_driver.h"
#include "core/schedule/moves/open_transfers.h"
#include "core/schedule/requests/plan_arena.h"
#include "core/schedule/requests/request_queue.h"
#include "core/schedule/requests/request_table.h"
#include "core/schedule/requests/stop_check.h"
#include "support/scripted_connector.h"

namespace quire::test {
namespace {

TEST(ScheduleInvariantDeathTest, PlansAreMadeAndAppliedInOrder) {
  CoreDriver d(sync_config());
  d.add(1, 4, 4);
  d.plan();
  EXPECT_DEATH(d.core->schedule(), "fewer plans than the limit are outstanding");
  PlanRing ring(1);
  EXPECT_DEATH(ring.pop(), "there is an outstanding plan");
  EXPECT_DEATH((void)ring.newest(), "there is an outstanding plan");
  EXPECT_DEATH((void)std::as_const(ring).at(0), "the plan is outstanding");
}

TEST(ScheduleInvariantDeathTest, APlanRefersOnlyToRequestsItSchedules) {
  PlanArena arena;
  arena.begin(StepId{3});
  Request request;
  request.id = RequestId{1};
  EXPECT_DEATH(arena.admit(request, true), "an admitted request has a slot");
  EXPECT_DEATH(arena.table_delta(request, 0, TableUpdate::append, {}), "only a scheduled request has block table updates");
  EXPECT_DEATH(arena.set_drafts({}), "draft tokens are set once, for the request scheduled last");
  EXPECT_DEATH(arena.set_encoder_inputs({}), "encoder inputs are set once, for the request scheduled last");
  EXPECT_DEATH((void)arena.num_tokens(request), "the request is in this plan");
  EXPECT_DEATH((void)arena.encoder_inputs(request), "the request is in this plan");
  EXPECT_DEATH(arena.unschedule(request), "schedules");
  request.slot = Slot{0};
  arena.schedule(request, {.num_tokens = 2});
  EXPECT_EQ(arena.num_tokens(request), 2U);
  EXPECT_DEATH(arena.schedule(request, {.num_tokens = 2}), "a request is scheduled once per step");
  const TokenId drafts[] = {5, 6};
  arena.set_drafts(drafts);
  EXPECT_DEATH(arena.set_drafts(drafts), "draft tokens are set once, for the request scheduled last");
  const std::uint32_t inputs[] = {0};
  arena.set_encoder_inputs(inputs);
  EXPECT_DEATH(arena.set_encoder_inputs(inputs), "encoder inputs are set once, for the request scheduled last");
  EXPECT_DEATH(arena.set_num_invalid_drafts(0, 3), "refused draft tokens do not exceed those of the request");
  EXPECT_DEATH((void)arena.drafts(1), "the index is in this plan");
}

TEST(ScheduleInvariantDeathTest, ARequestIsInOneQueue) {
  for (const SchedulingPolicy policy : {SchedulingPolicy::fcfs, SchedulingPolicy::priority}) {
    RequestQueue queue(policy, QueueName::waiting);
    EXPECT_DEATH((void)queue.front(), "there is a waiting request");
    Request request;
    EXPECT_DEATH(queue.take(request), "a request is in the queue that it records");
    queue.add(request);
    EXPECT_DEATH(queue.add(request), "a request is in at most one queue");
    EXPECT_DEATH(queue.prepend(request), "a request is in at most one queue");
    request.queue = QueueName::skipped;
    EXPECT_DEATH(queue.take(request), "a request is in the queue that it records");
  }
}

TEST(RequestQueue, KeepsItsOrderWhenARequestIsTakenFromItsMiddle) {
  RequestQueue queue(SchedulingPolicy::priority, QueueName::waiting);
  Request requests[5];
  for (std::size_t i = 0; i < 5; ++i) {
    requests[i].priority = static_cast<std::int64_t>(3 * i % 5);
    queue.add(requests[i]);
  }
  queue.take(requests[4]);  // priority 2
  EXPECT_EQ(requests[4].queue, QueueName::none);
  for (const std::size_t next : {0U, 2U, 1U, 3U}) {  // priorities 0, 1, 3 and 4
    EXPECT_EQ(&queue.front(), &requests[next]);
    queue.take(queue.front());
  }
}

TEST(ScheduleInvariantDeathTest, RequestIdsAreUniqueAndRequestsDestroyedOnce) {
  RequestTable table(4);
  Request& request = table.create(RequestId{1});
  EXPECT_DEATH(table.create(RequestId{1}), "request ids are unique");
  request.queue = QueueName::waiting;
  EXPECT_DEATH(table.destroy(request), "a destroyed request was in the table and is in no queue");
  request.queue = QueueName::none;
  table.destroy(request);
  EXPECT_DEATH(table.destroy(request), "a destroyed request was in the table and is in no queue");
}

TEST(ScheduleInvariantDeathTest, OnlyFinishedRequestsHaveFinishReasons) {
  EXPECT_DEATH((void)finish_reason(RequestStatus::running), "only a finished request has a finish reason");
  const Request request;
  EXPECT_DEATH((void)check_stop(request, 10), "a request stops only after a new output");
  CoreDriver d(sync_config());
  d.add(1, 4, 4);
  EXPECT_DEATH(d.core->finish(RequestId{1}, RequestStatus::waiting), "the new status is a finished status");
}

TEST(ScheduleInvariantDeathTest, APromptCoversAllOfItsStorage) {
  CoreDriver d(sync_config());
  const Tokens prompt = CoreDriver::prompt(1, 8);
  Tokens same_elsewhere = prompt;
  NewRequest request = CoreDriver::request(1, prompt, 4);
  request.prompt_storage = &same_elsewhere;
  EXPECT_DEATH((void)d.core->add(request), "the prompt covers all of its storage");
  request.prompt = std::span(same_elsewhere).first(4);
  EXPECT_DEATH((void)d.core->add(request), "the prompt covers all of its storage");
}

// This connector finds a prefix of 8 tokens for each request, and orders a request that did not fail.
class WrongConnector final : public ScriptedConnector {
 public:
  WrongConnector() { answer = {.num_tokens = 8, .load_async = false}; }
  void order_failed(std::size_t, std::span<RequestId> finishing, std::span<RequestId>) override { finishing[0] = RequestId{99}; }
};

TEST(ScheduleInvariantDeathTest, AConnectorOrdersOnlyFailedRequests) {
  WrongConnector connector;
  CoreDriver d(sync_config(), {.connector = &connector});
  d.add(1, 10, 5);
  d.plan();
  const BlockId bad[] = {d.blocks(1).at(0)};
  const StepResult result{.step = StepId{0}, .has_connector_output = true, .invalid_blocks = bad};
  EXPECT_DEATH((void)d.core->apply(result), "the connector orders only failed requests");
}

TEST(ScheduleInvariantDeathTest, AConnectorTransfersBlocksOfThePoolForAKnownRequest) {
  const std::uint64_t places[] = {7, 8};
  const auto transfer = [&](std::uint64_t request, BlockId block, std::size_t num_places) {
    WrongConnector connector;
    connector.transfers = {{.id = {}, .request = RequestId{request}, .blocks = {&block, 1}, .places = std::span(places).first(num_places)}};
    CoreDriver d(sync_config(32), {.connector = &connector});
    d.add(1, 10, 5);
    EXPECT_EQ(d.plan().transfers.size(), 1U);
  };
  transfer(1, BlockId{31}, 1);
  EXPECT_DEATH(transfer(99, BlockId{31}, 1), "a transfer belongs to a known request");
  EXPECT_DEATH(transfer(1, BlockId{31}, 2), "each block of a transfer has a slot outside");
  EXPECT_DEATH(transfer(1, BlockId{32}, 1), "open_transfers.cpp.*a transferred block is in the pool and is not the null block");
  EXPECT_DEATH(transfer(1, kNullBlock, 1), "open_transfers.cpp.*a transferred block is in the pool and is not the null block");
  EXPECT_DEATH(OpenTransfers(32, 1).close(TransferId{0}), "only an open transfer is closed");
}

}  // namespace
}  // namespace quire::test
