// The rest of spoiled_test.cpp: the books that requests, slots, sessions, transfers and queues are kept in.
#include <gtest/gtest.h>

#include "core/schedule/core_driver.h"
#include "core/schedule/requests/plan_arena.h"
#include "core/schedule/requests/request_table.h"
#include "core/schedule/state.h"
#include "support/scripted_connector.h"

namespace quire {
namespace {

using test::CoreDriver;
using test::priority_config;
using test::sync_config;

Request& booked(const CoreDriver& d, std::uint64_t id) {
  return *d.core->state_->table.find_any(RequestId{id});
}

// Request 1 runs and is in the newest plan; under PRIORITY the next victim is it.
CoreDriver one_is_planned(const CoreConfig& config) {
  CoreDriver d(config);
  d.add(1, 8, 20);
  d.plan();
  EXPECT_EQ(d.scheduled(1), 8U);
  return d;
}

// Nobody runs, and request 1 waits.
CoreDriver one_is_added(const CoreConfig& config, const CoreSeams& seams = {}) {
  CoreDriver d(config, seams);
  d.add(1, 8, 20);
  EXPECT_TRUE(d.core->state_->queues.waiting.contains(booked(d, 1)));
  return d;
}

TEST(SpoiledBooksDeathTest, ThePartsOfAPlanAreParallel) {
  PlanArena arena;
  arena.begin(StepId{3});
  Request request;
  request.id = RequestId{1};
  request.slot = Slot{0};
  arena.schedule(request, {.num_tokens = 2});
  arena.table_delta(request, 0, TableUpdate::append, {});
  EXPECT_EQ(arena.seal().scheduled.size(), 1U);
  EXPECT_DEATH(
      {
        arena.entries_.emplace_back();
        arena.seal();
      },
      "parallel arrays");
  EXPECT_DEATH(
      {
        arena.requests_.pop_back();
        arena.seal();
      },
      "parallel arrays");
  EXPECT_DEATH(
      {
        arena.delta_ranges_.pop_back();
        arena.seal();
      },
      "parallel arrays");
}

TEST(SpoiledBooksDeathTest, OnlyWhatRunsGivesWay) {
  CoreDriver d = one_is_planned(sync_config());
  Core::State& s = *d.core->state_;
  EXPECT_DEATH(
      {
        s.queues.running.clear();
        s.preemption.take_victim(s.plans.newest(), s.running_loop.cursor_);
      },
      "who asks for room runs");
  EXPECT_DEATH(
      {
        booked(d, 1).status = RequestStatus::waiting;
        s.preemption.put_back(booked(d, 1));
      },
      "only what runs is preempted");
}

TEST(SpoiledBooksDeathTest, WhatIsTakenOutOfAPlanWasInIt) {
  CoreDriver d = one_is_planned(priority_config(32));
  Core::State& s = *d.core->state_;
  EXPECT_DEATH(
      {
        s.running_loop.cursor_ = 0;
        s.preemption.take_victim(s.plans.newest(), s.running_loop.cursor_);
      },
      "what was scheduled lies before the cursor");
  EXPECT_DEATH(
      {
        s.budget.tokens_ = 64;
        s.preemption.take_victim(s.plans.newest(), s.running_loop.cursor_);
      },
      "no more comes back than was given");
}

TEST(SpoiledBooksDeathTest, AHitLeavesATokenToCompute) {
  test::ScriptedConnector connector;
  CoreConfig config = sync_config();
  config.prefix_cache.enable_prefix_caching = false;  // it asks the same before
  CoreDriver d = one_is_added(config, {.connector = &connector});
  EXPECT_DEATH(
      {
        booked(d, 1).tokens.clear();
        (void)d.core->state_->look_up.find(booked(d, 1));
      },
      "a hit leaves a token to compute");
}

TEST(SpoiledBooksDeathTest, KnownTokensAreLoadedAndCounted) {
  CoreDriver d = one_is_added(sync_config());
  Core::State& s = *d.core->state_;
  Request& request = booked(d, 1);
  EXPECT_DEATH(
      {
        request.num_computed_tokens = -1;
        s.look_up.take_received(request);
      },
      "known tokens were loaded");
  EXPECT_DEATH(
      {
        request.num_computed_tokens = 9;
        s.look_up.take_received(request);
      },
      "known tokens were loaded");
  EXPECT_DEATH(
      {
        request.num_computed_tokens = -1;
        (void)s.requests.kv_request(request);
      },
      "requests.cpp.*num_computed_tokens >= 0: a count");
  EXPECT_DEATH((void)s.budget.align_for_mamba(request, 0, 0), "a chunk has tokens");
}

TEST(SpoiledBooksDeathTest, ARequestBeginsBlank) {
  RequestTable table(4);
  Request& request = table.create(RequestId{1});
  table.destroy(request);
  EXPECT_DEATH(
      {
        request.known = true;
        table.create(RequestId{2});
      },
      "a blank request");
  EXPECT_DEATH(
      {
        request.tokens = {5};
        table.create(RequestId{2});
      },
      "a blank request");
  EXPECT_DEATH(
      {
        request.queue = QueueName::waiting;
        table.create(RequestId{2});
      },
      "a blank request");
  EXPECT_EQ(&table.create(RequestId{2}), &request);
}

TEST(SpoiledBooksDeathTest, ASlotIsReleasedByItsOwner) {
  CoreDriver d = one_is_added(sync_config());
  Core::State& s = *d.core->state_;
  Request& request = booked(d, 1);
  EXPECT_DEATH(s.slots.release(request), "who runs has a slot");
  EXPECT_DEATH(
      {
        request.slot = Slot{0};
        s.slots.release(request);
      },
      "a slot has one owner");
}

TEST(SpoiledBooksDeathTest, OnlyASessionGoesOn) {
  CoreDriver d = one_is_planned(sync_config());
  Core::State& s = *d.core->state_;
  Request& request = booked(d, 1);
  EXPECT_DEATH((void)s.sessions.go_on(request, RequestStatus::running), "session.known: a session");
  EXPECT_DEATH(
      {
        request.resumable = true;
        request.known = false;
        (void)s.sessions.go_on(request, RequestStatus::running);
      },
      "session.known: a session");
}

TEST(SpoiledBooksDeathTest, SessionsBetweenTwoInputsAreCounted) {
  CoreDriver d(sync_config());
  const test::Tokens prompt = CoreDriver::prompt(1, 3);
  NewRequest session = CoreDriver::request(1, prompt, 9);
  session.resumable = true;
  d.add(session);
  d.step({{1, {test::kStop}}});
  Core::State& s = *d.core->state_;
  ASSERT_EQ(booked(d, 1).status, RequestStatus::waiting_for_input);
  ASSERT_EQ(s.queues.num_waiting_for_input, 1U);
  const test::Tokens next = {61};
  const SessionInput input{.tokens = next};
  EXPECT_DEATH(
      {
        booked(d, 1).next_inputs.emplace_back();
        (void)d.core->schedule();
      },
      "look_up.cpp.*a blocked state");
  EXPECT_DEATH(
      {
        booked(d, 1).status = RequestStatus::waiting;
        (void)s.look_up.try_promote(booked(d, 1));
      },
      "look_up.cpp.*a blocked state");
  EXPECT_DEATH(
      {
        booked(d, 1).num_computed_tokens = -1;
        s.sessions.take_input(booked(d, 1), {});
      },
      "sessions.cpp.*num_kept >= 0: a count");
  EXPECT_DEATH(
      {
        s.queues.num_waiting_for_input = 0;
        (void)d.core->continue_session(RequestId{1}, &input);
      },
      "sessions.cpp.*sessions between two inputs are counted");
}

TEST(SpoiledBooksDeathTest, OnlyALoadWhoseResultWasSkippedFails) {
  CoreDriver d = one_is_planned(sync_config());
  Core::State& s = *d.core->state_;
  Request& request = booked(d, 1);
  EXPECT_DEATH(
      {
        s.failed_loads.failed_.push_back(&request);
        s.failed_loads.handle();
      },
      "its result was skipped");
  EXPECT_DEATH(
      {
        s.failed_loads.failed_.push_back(&request);
        request.load_failed = true;
        request.known = false;
        s.failed_loads.handle();
      },
      "its result was skipped");
}

TEST(SpoiledBooksDeathTest, WhoSharesWaitsAndRelativesAreCounted) {
  CoreDriver d(sync_config());
  d.add(1, 6, 20);
  d.step();
  ASSERT_TRUE(d.core->fork(RequestId{1}, {.id = RequestId{2}}).has_value());
  d.core->check_invariants();
  Core::State& s = *d.core->state_;
  Request& child = booked(d, 2);
  ASSERT_EQ(s.forks.sharing().size(), 1U);
  EXPECT_DEATH(
      {
        child.status = RequestStatus::running;
        s.forks.give_up_share(EventCause::none);
      },
      "forks.cpp.*it has never run");
  EXPECT_DEATH(
      {
        child.num_in_flight = 1;
        s.forks.give_up_share(EventCause::none);
      },
      "forks.cpp.*it has never run");
  EXPECT_DEATH(
      {
        child.num_computed_tokens = 0;
        d.core->check_invariants();
      },
      "who shares while it waits has something");
  EXPECT_DEATH(
      {
        s.forks.families_.clear();
        s.forks.leave_family(child);
      },
      "each is counted until it ends");
  EXPECT_DEATH(
      {
        ++s.forks.families_.at(child.family);
        d.core->check_invariants();
      },
      "relatives are counted until they end");
}

TEST(SpoiledBooksDeathTest, SomebodyWaitsAndNobodyIsLeftBetweenTheQueues) {
  CoreDriver d(sync_config());
  d.add(1, 8, 20);
  d.step();
  Core::State& s = *d.core->state_;
  EXPECT_DEATH((void)s.waiting_loop.queue_to_take_from(), "waiting.cpp.*somebody waits");
  EXPECT_DEATH(
      {
        s.queues.step_skipped.add(booked(d, 1));
        (void)d.core->schedule();
      },
      "waiting.cpp.*that queue lives for one step");
}

}  // namespace
}  // namespace quire
