// The rest of spoiled_test.cpp: what the parts of a step expect of each other. A part is called as no other one calls it, or with one field
// spoiled, and stops the program before a plan or a request is wrong.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "core/schedule/moves/open_transfers.h"
#include "core/schedule/requests/event_stamp.h"
#include "core/schedule/requests/plan_arena.h"
#include "core/schedule/requests/updates.h"
#include "core/schedule/spoiled_step.h"
#include "core/schedule/state.h"

namespace quire {
namespace {

using test::CoreDriver;
using test::sync_config;

using SpoiledStepsDeathTest = test::SpoiledStep;

TEST_F(SpoiledStepsDeathTest, APlanTakesWhoRunsAndGivesUpWhatItCounted) {
  PlanArena& arena = s.plans.begin();
  EXPECT_DEATH(arena.schedule(waits, {.num_tokens = 2}), "who is scheduled has a row of the batch");
  EXPECT_DEATH(arena.schedule(runs, {.num_tokens = 0}), "who is scheduled has a row of the batch");
  EXPECT_DEATH((void)arena.num_computed_tokens(runs), "asked where a request of this step begins");
  EXPECT_DEATH((void)arena.num_drafts(runs), "asked about drafts of this step");
  EXPECT_DEATH(arena.set_new_tokens({}), "for the request scheduled last");
  arena.schedule(runs, {.num_tokens = 2});
  const OwnCopy same{.index = 0, .source = BlockId{2}, .destination = BlockId{2}};
  const OwnCopy to_null{.index = 0, .source = BlockId{2}, .destination = kNullBlock};
  EXPECT_DEATH(arena.copy_block(runs, 0, same), "a copy is another block");
  EXPECT_DEATH(arena.copy_block(runs, 0, to_null), "a copy is another block");
  EXPECT_DEATH(arena.set_num_invalid_drafts(1, 0), "drafts of a request of this plan");
  EXPECT_DEATH((void)arena.num_invalid_drafts(1), "refused drafts of a request of this plan");
  EXPECT_DEATH(
      {
        runs.last_index = 1;
        arena.unschedule(runs);
      },
      "it lies where it says");
  EXPECT_DEATH(
      {
        arena.plan_.num_scheduled_tokens = 1;
        arena.unschedule(runs);
      },
      "its tokens were counted");
  EXPECT_DEATH(
      {
        arena.num_freed_ = 1;
        arena.seal();
      },
      "identifiers that are freed have views");
  EXPECT_DEATH((void)s.plans.at(2), "no more plans than there may be");
}

TEST_F(SpoiledStepsDeathTest, AStepKeepsToWhatItWasGiven) {
  PlanArena& arena = s.plans.begin();
  arena.schedule(runs, {.num_tokens = 2});
  EXPECT_DEATH(s.advance(arena, *std::make_unique<StepPlan>()), "a plan knows whose tokens it runs");
  EXPECT_DEATH(
      {
        runs.num_in_flight = 1;
        s.take({.step = StepId{99}});
      },
      "the oldest plan is applied first");
  EXPECT_DEATH(
      {
        s.budget.tokens_ = -1;
        s.budget.end_step();
      },
      "a step gives no more than it has");
  EXPECT_DEATH(
      {
        arena.entries_[0].drafts.size = 9;
        s.budget.send_new_tokens(runs, arena);
      },
      "drafts are among the tokens of a step");
  EXPECT_DEATH((void)s.encoder.schedule(runs, 0, 0), "a chunk has tokens");
  EXPECT_DEATH(
      {
        s.encoder.budget_ = 1000;
        s.encoder.take_back(runs, arena);
      },
      "no more embeds come back than were given");
}

TEST_F(SpoiledStepsDeathTest, OnlyWhoMayRunIsAdmittedOrGivenRoom) {
  PlanArena& arena = s.plans.begin();
  EXPECT_DEATH(s.admitting.admit(waits, 0, 1, false, arena), "it was taken out of its queue");
  EXPECT_DEATH(
      {
        s.queues.waiting.take(waits);
        s.queues.running.resize(8);
        s.admitting.admit(waits, 0, 1, false, arena);
      },
      "there is a row of the batch for it");
  EXPECT_DEATH((void)s.admission_room.try_take(waits, {}, 0, {}), "it runs now, or waits for its blocks");
  EXPECT_DEATH((void)s.running_loop.make_room(runs, 0, arena), "room is made for tokens");
  EXPECT_DEATH(s.slots.take(runs), "one row of the batch for each request");
  std::size_t cursor = 0;
  EXPECT_DEATH(
      {
        runs.slot = kNoSlot;
        (void)s.preemption.take_victim(arena, cursor);
      },
      "who runs has a row of the batch");
}

TEST_F(SpoiledStepsDeathTest, OnlyABlockedRequestIsPromoted) {
  EXPECT_DEATH((void)s.look_up.try_promote(waits), "a blocked state");
  EXPECT_DEATH(s.look_up.take_received(waits), "its transfers are over");
  EXPECT_DEATH(s.look_up.note_load(waits, {}), "something is loaded while it waits");
  EXPECT_DEATH(s.giving_way.take_back(runs, EventCause::none, {}), "only a request that waits with loaded blocks gives way");
  EXPECT_DEATH(s.requests.forget_loaded(runs), "nothing runs on these blocks or fills them");
}

// It waits for blocks, and nobody has counted it.
TEST_F(SpoiledStepsDeathTest, RequestsWhoseBlocksAreBeingLoadedAreCounted) {
  waits.status = RequestStatus::waiting_for_remote_kv;
  Request* request = &waits;
  EXPECT_DEATH(s.ending.finish({&request, 1}, RequestStatus::finished_aborted), "ending.cpp.*whose blocks are being loaded are counted");
  EXPECT_DEATH((void)s.results.handle_stopped(waits, {}), "results.cpp.*whose blocks are being loaded are counted");
  const RequestId received[] = {waits.id};
  EXPECT_DEATH(s.transfers.take({.has_connector_output = true, .finished_receiving = received}),
               "transfers.cpp.*whose blocks are being loaded are counted");
  waits.status = RequestStatus::waiting;
}

TEST_F(SpoiledStepsDeathTest, ARequestEndsWithoutASlotAndIsDestroyedWhenNobodyNamesIt) {
  Request* request = &waits;
  EXPECT_DEATH(
      {
        waits.slot = Slot{5};
        s.ending.finish({&request, 1}, RequestStatus::finished_aborted);
      },
      "its row of the batch is free");
  EXPECT_DEATH(
      {
        runs.status = RequestStatus::finished_stopped;
        s.ending.end(runs);
      },
      "its row of the batch was released when it stopped");
  EXPECT_DEATH(
      {
        runs.status = RequestStatus::finished_stopped;
        runs.holders = 1;
        s.ended.free_blocks(runs);
      },
      "blocks that somebody keeps are not given back");
  EXPECT_DEATH(s.ended.destroy(runs), "no plan and no holder needs it");
  EXPECT_DEATH(s.table.destroy(runs), "no plan names what is destroyed");
  EXPECT_DEATH(
      {
        runs.known = false;
        (void)s.results.handle_stopped(runs, {});
      },
      "only a request that is known stops");
  EXPECT_DEATH(
      {
        runs.known = false;
        s.requests.append_token(runs, 7);
      },
      "only a request that is known gets tokens");
}

TEST_F(SpoiledStepsDeathTest, OnlyASessionIsGivenInputs) {
  EXPECT_DEATH((void)s.sessions.give(runs, nullptr), "a session takes inputs");
  EXPECT_DEATH(s.sessions.take_input(runs, {}), "an input was checked for tokens");
}

TEST_F(SpoiledStepsDeathTest, AForkIsOfAKnownLengthAndItsShareIsSomething) {
  EXPECT_DEATH((void)s.forks.create_request(runs, {.id = RequestId{9}, .num_tokens = 99}), "check\\(\\) goes before");
  EXPECT_DEATH(
      {
        runs.structured_output = true;
        (void)s.forks.fork_grammar(runs, {.id = RequestId{9}});
      },
      "structured output was taken in with a grammar");
  EXPECT_DEATH(
      {
        s.forks.sharing_.push_back(&waits);
        (void)s.forks.give_up_share(EventCause::none);
      },
      "who shares has something");
}

TEST_F(SpoiledStepsDeathTest, PinsAndPressureChangeOnce) {
  EXPECT_DEATH(s.policy.pin(runs, 1.0), "only a finished turn of a job is pinned");
  EXPECT_DEATH(s.pressure.change(false), "an event tells of a change");
  EXPECT_DEATH(s.queues.waiting.prepend_all(s.queues.waiting), "a queue that took from itself would never end");
}

TEST_F(SpoiledStepsDeathTest, WhatFailedIsHandledBeforeMoreFails) {
  const PlanArena& arena = s.plans.begin();
  EXPECT_DEATH(
      {
        s.failed_loads.failed_.push_back(&runs);
        s.failed_loads.find(arena, {});
      },
      "failures of the result before were handled");
  EXPECT_DEATH(s.transfers.end({.transfer = TransferId{9}}), "an end was checked before it is taken");
}

TEST_F(SpoiledStepsDeathTest, WhatIsNotSwappedOutDoesNotComeBack) {
  EXPECT_DEATH((void)s.swap.can_come_back(runs), "something of it lies elsewhere");
  EXPECT_DEATH(s.swap.drop(runs, EventCause::none), "it gives up what lies elsewhere");
  EXPECT_DEATH(s.swap.detach(runs), "they know each other");
  EXPECT_DEATH(
      {
        s.swap.free_places_.push_back(0);
        (void)d.core->counters();
      },
      "a place is free once");
}

TEST(SpoiledPartsDeathTest, OpenTransfersTouchBlocksOfThePool) {
  OpenTransfers open(4, 2);
  std::vector<TransferId> fences;
  EXPECT_DEATH((void)open.is_being_loaded(BlockId{4}), "asked about a block of the pool");
  EXPECT_DEATH(open.add_fences(BlockId{4}, TransferId{0}, fences), "a plan writes to blocks of the pool");
  const BlockId blocks[] = {BlockId{1}};
  const std::uint64_t places[] = {0};
  const Transfer transfer{.id = {}, .request = RequestId{1}, .blocks = blocks, .places = places};
  const auto opened = open.open(transfer);
  ASSERT_TRUE(opened.has_value());
  const TransferId id = opened.value_or(Transfer{}).id;
  EXPECT_DEATH(
      {
        open.num_touching_[1] = 0;
        open.close(id);
      },
      "a block is let go as often as it was touched");
  EXPECT_DEATH(
      {
        open.next_id_ = id;
        (void)open.open(transfer);
      },
      "ids rise");
}

TEST(SpoiledPartsDeathTest, UpdatesDoNotMoveTheirTokens) {
  Updates updates(1, 0);
  updates.begin(1);
  while (updates.num_tokens() < updates.tokens_.capacity()) updates.add_token(1);
  EXPECT_DEATH(updates.add_token(1), "views of the tokens before stay valid");
  EXPECT_DEATH((void)updates.tokens_from(updates.num_tokens() + 1), "tokens that were added");
  Request request;
  EXPECT_DEATH(
      {
        updates.num_events_ = 1;
        updates.report(request, 0, {});
      },
      "lists of events are used again one by one");
}

TEST(SpoiledParts, ListsOfEventsAreUsedAgainFromStepToStep) {
  Updates updates(2, 0);
  for (int step = 0; step < 3; ++step) {
    updates.begin(2);
    for (const std::size_t num_events : {1U, 2U}) {
      Request request;
      request.events.resize(num_events);
      EXPECT_EQ(updates.report(request, 0, {}).events.size(), num_events);
    }
    EXPECT_EQ(updates.events_.size(), 2U) << step;
  }
}

TEST(SpoiledPartsDeathTest, NobodyIsToldWhereNobodyAsked) {
  EventStamp stamp(nullptr);
  EXPECT_DEATH(stamp.on_event({}), "wanted\\(\\) is asked first");
}

}  // namespace
}  // namespace quire
