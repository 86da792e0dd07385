// Rules of use inside the scheduler, and of its clients: whoever breaks one stops the program with a message. One test per class.
#include <gtest/gtest.h>

#include <utility>

#include "core/schedule/core_driver.h"
#include "core/schedule/moves/open_transfers.h"
#include "core/schedule/requests/plan_arena.h"
#include "core/schedule/requests/request_queue.h"
#include "core/schedule/requests/request_table.h"
#include "core/schedule/requests/stop_check.h"

namespace quire {
namespace {

using test::CoreDriver;
using test::sync_config;

TEST(ScheduleInvariantDeathTest, PlansAreMadeAndAppliedInTurn) {
  CoreDriver d(sync_config());
  d.add(1, 4, 4);
  d.plan();
  EXPECT_DEATH(d.core->schedule(), "apply an outstanding plan first");
  PlanRing ring(1);
  EXPECT_DEATH(ring.pop(), "no plan is outstanding");
  EXPECT_DEATH((void)ring.newest(), "no plan is outstanding");
  EXPECT_DEATH((void)std::as_const(ring).at(0), "an outstanding plan");
}

TEST(ScheduleInvariantDeathTest, APlanTellsOfWhatItSchedules) {
  PlanArena arena;
  arena.begin(StepId{3});
  Request request;
  request.id = RequestId{1};
  EXPECT_DEATH(arena.admit(request, true), "who is admitted has a slot");
  EXPECT_DEATH(arena.table_delta(request, 0, TableUpdate::append, {}), "what runs in this step");
  EXPECT_DEATH(arena.set_drafts({}), "for the request scheduled last");
  EXPECT_DEATH(arena.set_encoder_inputs({}), "for the request scheduled last");
  EXPECT_DEATH((void)arena.num_tokens(request), "asked about this step");
  EXPECT_DEATH((void)arena.encoder_inputs(request), "asked about this step");
  EXPECT_DEATH(arena.unschedule(request), "schedules");
  request.slot = Slot{0};
  arena.schedule(request, {.num_tokens = 2});
  EXPECT_EQ(arena.num_tokens(request), 2U);
  EXPECT_DEATH(arena.schedule(request, {.num_tokens = 2}), "once in a step");
  const TokenId drafts[] = {5, 6};
  arena.set_drafts(drafts);
  EXPECT_DEATH(arena.set_drafts(drafts), "for the request scheduled last, once");
  const std::uint32_t inputs[] = {0};
  arena.set_encoder_inputs(inputs);
  EXPECT_DEATH(arena.set_encoder_inputs(inputs), "for the request scheduled last, once");
  EXPECT_DEATH(arena.set_num_invalid_drafts(0, 3), "drafts of the request");
  EXPECT_DEATH((void)arena.drafts(1), "a request of this plan");
}

TEST(ScheduleInvariantDeathTest, ARequestIsInOneQueue) {
  for (const SchedulingPolicy policy : {SchedulingPolicy::fcfs, SchedulingPolicy::priority}) {
    RequestQueue queue(policy, QueueName::waiting);
    EXPECT_DEATH((void)queue.front(), "somebody waits");
    Request request;
    EXPECT_DEATH(queue.take(request), "a request knows its queue");
    queue.add(request);
    EXPECT_DEATH(queue.add(request), "in one queue at most");
    EXPECT_DEATH(queue.prepend(request), "in one queue at most");
    request.queue = QueueName::skipped;
    EXPECT_DEATH(queue.take(request), "a request knows its queue");
  }
}

TEST(ScheduleInvariantDeathTest, OnlyTheRequestInFrontIsTaken) {
  RequestQueue queue(SchedulingPolicy::priority, QueueName::waiting);
  Request first, second;
  second.priority = 1;
  queue.add(second);
  queue.add(first);
  EXPECT_DEATH(queue.take(second), "only the one in front is taken");
}

TEST(ScheduleInvariantDeathTest, RequestIdsAreUniqueAndRequestsDestroyedOnce) {
  RequestTable table(4);
  Request& request = table.create(RequestId{1});
  EXPECT_DEATH(table.create(RequestId{1}), "never reused");
  request.queue = QueueName::waiting;
  EXPECT_DEATH(table.destroy(request), "out of the queues");
  request.queue = QueueName::none;
  table.destroy(request);
  EXPECT_DEATH(table.destroy(request), "destroyed once");
}

TEST(ScheduleInvariantDeathTest, OnlyEndsHaveReasons) {
  EXPECT_DEATH((void)finish_reason(RequestStatus::running), "a live request has no finish reason");
  const Request request;
  EXPECT_DEATH((void)check_stop(request, 10), "only a new output stops a request");
  CoreDriver d(sync_config());
  d.add(1, 4, 4);
  EXPECT_DEATH(d.core->finish(RequestId{1}, RequestStatus::waiting), "a status to finish with");
}

TEST(ScheduleInvariantDeathTest, APromptIsTheWholeOfItsStorage) {
  CoreDriver d(sync_config());
  const test::Tokens prompt = CoreDriver::prompt(1, 8);
  test::Tokens same_elsewhere = prompt;
  NewRequest request = CoreDriver::request(1, prompt, 4);
  request.prompt_storage = &same_elsewhere;
  EXPECT_DEATH((void)d.core->add(request), "the prompt is the whole of its storage");
  request.prompt = std::span(same_elsewhere).first(4);
  EXPECT_DEATH((void)d.core->add(request), "the prompt is the whole of its storage");
}

// Has a prefix of 8 tokens for each request, adds the transfer that a test says, and orders one that did not fail.
class WrongConnector final : public Connector {
 public:
  std::optional<Transfer> transfer;

  ExternalMatch match(const RequestView&, std::uint32_t) override { return {.num_tokens = 8, .load_async = false}; }
  void allocated(const RequestView&, GroupBlocks, std::uint32_t) override {}
  bool finished(const RequestView&, GroupBlocks) override { return false; }
  void planned(const StepPlan&) override {}
  void plan_transfers(const StepPlan&, TransferList& transfers) override {
    if (transfer) (void)transfers.add(*transfer);
  }
  void order_failed(std::size_t, std::span<RequestId> finishing, std::span<RequestId>) override { finishing[0] = RequestId{99}; }
  void step_output() override {}
  bool reset() override { return true; }
};

TEST(ScheduleInvariantDeathTest, AConnectorOrdersWhatFailed) {
  WrongConnector connector;
  CoreDriver d(sync_config(), {.connector = &connector});
  d.add(1, 10, 5);
  d.plan();
  const BlockId bad[] = {d.blocks(1).at(0)};
  const StepResult result{.step = StepId{0}, .has_connector_output = true, .invalid_blocks = bad};
  EXPECT_DEATH((void)d.core->apply(result), "orders only what failed");
}

TEST(ScheduleInvariantDeathTest, AConnectorTransfersBlocksOfThePoolForARequestThatIsKnown) {
  const std::uint64_t places[] = {7, 8};
  const auto transfer = [&](std::uint64_t request, BlockId block, std::size_t num_places) {
    WrongConnector connector;
    connector.transfer = {.id = {}, .request = RequestId{request}, .blocks = {&block, 1}, .places = std::span(places).first(num_places)};
    CoreDriver d(sync_config(32), {.connector = &connector});
    d.add(1, 10, 5);
    EXPECT_EQ(d.plan().transfers.size(), 1U);
  };
  transfer(1, BlockId{31}, 1);
  EXPECT_DEATH(transfer(99, BlockId{31}, 1), "a transfer is for a request that is known");
  EXPECT_DEATH(transfer(1, BlockId{31}, 2), "each block has its place");
  EXPECT_DEATH(transfer(1, BlockId{32}, 1), "open_transfers.cpp.*a block of the pool");
  EXPECT_DEATH(transfer(1, kNullBlock, 1), "open_transfers.cpp.*a block of the pool");
  EXPECT_DEATH(OpenTransfers(32, 1).close(TransferId{0}), "only an open transfer is closed");
}

}  // namespace
}  // namespace quire
