// What no call from outside brings about: private state is spoiled, one field at a time, or a part of the scheduler is called wrongly, and
// the check that guards it stops the program. The rules that clients can break are in invariants_test.cpp.
#include <gtest/gtest.h>

#include "core/schedule/core_driver.h"
#include "core/schedule/requests/plan_arena.h"
#include "core/schedule/state.h"

namespace quire {
namespace {

using test::CoreDriver;
using test::sync_config;

Request& spoiled_request(const CoreDriver& d, std::uint64_t id) {
  return *d.core->state_->table.find_any(RequestId{id});
}

// Request 1 runs, request 2 waits, and no plan is outstanding.
CoreDriver one_runs_one_waits() {
  CoreConfig config = sync_config();
  config.speculation.num_spec_tokens = 3;
  CoreDriver d(config);
  d.add(1, 8, 20);
  d.step();
  d.add(2, 8, 20);
  d.core->check_invariants();
  return d;
}

TEST(SpoiledScheduleDeathTest, APlanKeepsToTheLimits) {
  CoreDriver d = one_runs_one_waits();
  Core::State& s = *d.core->state_;
  PlanArena& arena = s.plans.begin();
  EXPECT_DEATH(
      {
        s.queues.running.resize(9);
        s.complete(arena);
      },
      "the batch has a limit");
  StepPlan plan;
  plan.num_scheduled_tokens = 65;
  EXPECT_DEATH(s.advance(arena, plan), "a step keeps to its budget");
}

TEST(SpoiledScheduleDeathTest, APlanIsAppliedOnceAndWithPlausibleTokens) {
  CoreDriver d = one_runs_one_waits();
  Core::State& s = *d.core->state_;
  Request& request = spoiled_request(d, 1);
  const TokenId tokens[] = {50, 51, 52};
  const Draft draft{RequestId{1}, tokens};
  d.core->set_drafts({&draft, 1});
  const StepPlan& plan = d.plan();
  ASSERT_EQ(plan.scheduled[0].drafts.size(), 3U);
  const StepResult nothing_sampled{.step = plan.step};
  EXPECT_DEATH(
      {
        request.num_in_flight = 0;
        (void)d.core->apply(nothing_sampled);
      },
      "a plan is applied once");
  EXPECT_DEATH(s.results.take_back_rejected(s.plans.at(0), 0, 0, false), "drafts and one token more");
  EXPECT_DEATH(s.results.take_back_rejected(s.plans.at(0), 0, 5, false), "drafts and one token more");
  std::span<const TokenId> none;
  EXPECT_DEATH((void)s.results.take_tokens(request, none, false), "a result with tokens");
}

TEST(SpoiledScheduleDeathTest, ARequestKnowsItsPlaceInThePlan) {
  CoreDriver d = one_runs_one_waits();
  d.plan();
  const TokenId tokens[] = {50};
  const Draft draft{RequestId{1}, tokens};
  ASSERT_EQ(d.scheduled(2), 8U);
  EXPECT_DEATH(
      {
        spoiled_request(d, 1).last_index = 1;
        d.core->set_drafts_in_plan({&draft, 1});
      },
      "a request knows its place in the plan");
}

TEST(SpoiledScheduleDeathTest, OtherPoliciesHaveNoJobs) {
  CoreDriver d(sync_config());
  EXPECT_DEATH((void)d.core->state_->jobs.agent(), "only CONTINUUM has jobs");
}

TEST(SpoiledScheduleDeathTest, ARequestEndsOnce) {
  CoreDriver d = one_runs_one_waits();
  Core::State& s = *d.core->state_;
  Request* request = &spoiled_request(d, 1);
  EXPECT_DEATH(s.ended.free_blocks(*request), "blocks are given back once");
  EXPECT_DEATH(s.ended.keep(*request, Holder::pin), "only a finished request's blocks need a holder");
  EXPECT_DEATH(s.ended.let_go(*request, Holder::transfer), "only a holder lets go");
  EXPECT_DEATH(
      {
        s.ended.gone_.push_back(request);
        s.ended.destroy_gone();
      },
      "what is gone was forgotten");
  request->status = RequestStatus::finished_stopped;
  EXPECT_DEATH(s.results.handle_stopped(*request, {}), "a request stops once");
  EXPECT_DEATH(s.ending.finish({&request, 1}, RequestStatus::finished_aborted), "a request ends once");
  EXPECT_DEATH(
      {
        request->known = false;
        s.ended.free_blocks(*request);
      },
      "blocks are given back once");
  request->status = RequestStatus::running;
}

TEST(SpoiledScheduleDeathTest, ARequestIsInOneState) {
  CoreDriver d = one_runs_one_waits();
  Request& runs = spoiled_request(d, 1);
  Request& waits = spoiled_request(d, 2);
  const Core& core = *d.core;
  EXPECT_DEATH(
      {
        runs.slot = kNoSlot;
        core.check_invariants();
      },
      "a slot exactly while it runs");
  EXPECT_DEATH(
      {
        waits.slot = Slot{5};
        core.check_invariants();
      },
      "a slot exactly while it runs");
  EXPECT_DEATH(
      {
        runs.queue = QueueName::waiting;
        core.check_invariants();
      },
      "what runs does not wait");
  EXPECT_DEATH(
      {
        waits.status = RequestStatus::finished_stopped;
        core.check_invariants();
      },
      "what is finished does not wait");
  EXPECT_DEATH(
      {
        waits.queue = QueueName::step_skipped;
        core.check_invariants();
      },
      "request.queue != QueueName::step_skipped");
  EXPECT_DEATH(
      {
        waits.known = false;
        core.check_invariants();
      },
      "only what has ended is forgotten");
  EXPECT_DEATH(
      {
        runs.holders = 1;
        core.check_invariants();
      },
      "a finished request is known while somebody keeps its blocks");
}

// An outstanding plan still names it.
TEST(SpoiledScheduleDeathTest, WhatIsForgottenHoldsNoBlocks) {
  CoreDriver d = one_runs_one_waits();
  d.plan();
  ASSERT_EQ(d.core->finish(RequestId{1}, RequestStatus::finished_aborted), FinishEffect::in_flight);
  Request& gone = spoiled_request(d, 1);
  ASSERT_FALSE(gone.known);
  d.core->check_invariants();
  EXPECT_DEATH(
      {
        gone.blocks.groups_.at(0).blocks = {BlockId{1}};
        d.core->check_invariants();
      },
      "what is forgotten holds no blocks");
  EXPECT_DEATH(
      {
        gone.holders = 1;
        d.core->check_invariants();
      },
      "a finished request is known while somebody keeps its blocks");
}

TEST(SpoiledScheduleDeathTest, TokensAreCounted) {
  CoreDriver d = one_runs_one_waits();
  Request& request = spoiled_request(d, 1);
  const Core& core = *d.core;
  EXPECT_DEATH(
      {
        request.num_output_tokens = -1;
        core.check_invariants();
      },
      "outputs are among the tokens");
  EXPECT_DEATH(
      {
        request.num_output_tokens = request.num_tokens() + 1;
        core.check_invariants();
      },
      "outputs are among the tokens");
  EXPECT_DEATH(
      {
        request.num_computed_tokens = request.num_tokens() + 4;
        core.check_invariants();
      },
      "no more is computed than is known or awaited");
  EXPECT_DEATH(
      {
        request.hashes.pop_back();
        core.check_invariants();
      },
      "a name for each full block");
}

TEST(SpoiledScheduleDeathTest, RequestsAreKeptUnderTheirIdsAndCountedByPlans) {
  CoreDriver d = one_runs_one_waits();
  const Core& core = *d.core;
  EXPECT_DEATH(
      {
        spoiled_request(d, 2).id = RequestId{99};
        core.check_invariants();
      },
      "a request is found under its id");
  EXPECT_DEATH(
      {
        ++spoiled_request(d, 1).num_in_flight;
        core.check_invariants();
      },
      "counted by the outstanding plans");
  d.plan();
  EXPECT_DEATH(
      {
        --spoiled_request(d, 1).num_in_flight;
        core.check_invariants();
      },
      "counted by the outstanding plans");
}

TEST(SpoiledScheduleDeathTest, TheBatchOwnsItsSlots) {
  CoreDriver d = one_runs_one_waits();
  Core::State& s = *d.core->state_;
  EXPECT_DEATH(
      {
        s.queues.running[0] = &spoiled_request(d, 2);
        d.core->check_invariants();
      },
      "who is in `running` runs");
  EXPECT_DEATH(
      {
        s.slots.free_.pop_back();
        d.core->check_invariants();
      },
      "each slot is free or has one owner");
  EXPECT_DEATH(
      {
        s.slots.free_.back() = s.queues.running[0]->slot;
        d.core->check_invariants();
      },
      "each slot is free or has one owner");
  // All slots are there, and one is there twice.
  EXPECT_DEATH(
      {
        s.slots.free_.push_back(s.slots.free_.back());
        d.core->check_invariants();
      },
      "each slot is free or has one owner");
}

TEST(SpoiledScheduleDeathTest, ThePartsOfAPlanLieInItsPools) {
  PlanArena arena;
  arena.begin(StepId{3});
  Request request;
  request.id = RequestId{1};
  request.slot = Slot{0};
  arena.schedule(request, {.num_tokens = 2});
  const BlockId blocks[] = {BlockId{4}, BlockId{5}};
  arena.table_delta(request, 0, TableUpdate::append, blocks);
  const std::uint32_t inputs[] = {0};
  arena.set_encoder_inputs(inputs);
  EXPECT_EQ(arena.seal().table_deltas[0].blocks.size(), 2U);
  EXPECT_DEATH(
      {
        ++arena.delta_ranges_[0].begin;
        arena.seal();
      },
      "a part lies in its pool");
  EXPECT_DEATH(
      {
        ++arena.entries_[0].drafts.size;
        arena.seal();
      },
      "a part lies in its pool");
  EXPECT_DEATH(
      {
        ++arena.entries_[0].encoder_inputs.begin;
        (void)arena.encoder_inputs(request);
      },
      "a part lies in its pool");
}

}  // namespace
}  // namespace quire
