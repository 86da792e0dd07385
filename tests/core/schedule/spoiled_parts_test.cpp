// The rest of spoiled_test.cpp: what a step gives and takes back, who is handed from one part to the next, and what results say of plans.
#include <gtest/gtest.h>

#include <vector>

#include "core/schedule/requests/slots.h"
#include "core/schedule/spoiled_step.h"
#include "core/schedule/state.h"

namespace quire {
namespace {

using test::CoreDriver;
using test::sync_config;

// With a plan that is being made and has nobody yet.
class SpoiledPartsOfAStepDeathTest : public test::SpoiledStep {
 protected:
  PlanArena& arena = s.plans.begin();
};

TEST_F(SpoiledPartsOfAStepDeathTest, NoMoreIsGivenThanIsLeft) {
  s.budget.begin_step(PauseState::unpaused, 2);
  EXPECT_DEATH(s.budget.commit(runs, 0, ScheduledKind::running, arena), "no more is given than is left");
  EXPECT_DEATH(s.budget.commit(runs, 65, ScheduledKind::running, arena), "no more is given than is left");
  s.budget.commit(runs, 64, ScheduledKind::running, arena);
  EXPECT_DEATH(s.budget.commit(runs, 1, ScheduledKind::running, arena), "no more is given than is left");
  EXPECT_DEATH(s.running_loop.take_drafts(runs, 9, arena), "no more drafts run than there are");
  Slots slots(1);
  Request first, second;
  slots.take(first);
  EXPECT_DEATH(slots.take(second), "a slot for each that may run");
}

TEST_F(SpoiledPartsOfAStepDeathTest, EncoderInputsAreOfTheRequestScheduledLastAndWithinTheBudget) {
  arena.schedule(runs, {.num_tokens = 1});
  EXPECT_DEATH(s.encoder.allocate(waits, {}, arena), "inputs go to the request scheduled last");
  runs.features.push_back({"image", PlaceholderRange(0, 2)});
  const std::uint32_t input[] = {0};
  EXPECT_DEATH(
      {
        s.encoder.cache_ = EncoderCache(EncoderCacheMode::shared, 8);
        s.encoder.allocate(runs, {.num_new_tokens = 1, .compute_budget = -1, .to_compute = input, .to_load = {}, .to_share = {}}, arena);
      },
      "no more embeds are computed than a step may");
}

TEST_F(SpoiledPartsOfAStepDeathTest, WhoIsAdmittedPlannedOrGivenBackIsInTheRightState) {
  s.queues.waiting.take(waits);
  EXPECT_DEATH(
      {
        waits.status = RequestStatus::waiting_for_input;
        s.admitting.admit(waits, 0, 1, false, arena);
      },
      "only these are admitted");
  EXPECT_DEATH(
      {
        waits.deferred = true;
        s.queues.end_deferral(waits);
      },
      "who is passed over is counted");
  EXPECT_DEATH(s.giving_back.give_back(runs), "giving_back.cpp.*it waits");
  EXPECT_DEATH(s.ending.end(runs), "request.finished\\(\\) && request.known");
  arena.schedule(runs, {.num_tokens = 1});
  EXPECT_DEATH(
      {
        runs.status = RequestStatus::preempted;
        s.advance(arena, arena.seal());
      },
      "what is planned runs");
  EXPECT_DEATH(
      {
        StepPlan& plan = arena.seal();
        runs.id = RequestId{9};
        s.advance(arena, plan);
      },
      "what is planned runs");
  const NewRequest empty{.id = RequestId{9}};
  EXPECT_DEATH((void)s.requests.create(empty), "a request was checked before it is made");
}

TEST_F(SpoiledPartsOfAStepDeathTest, WhatAPlanRunsIsInFlightAndItsResultIsTakenWhole) {
  arena.schedule(runs, {.num_tokens = 2});
  arena.seal();
  EXPECT_DEATH(s.results.end_flight(runs, 2), "what a plan runs is in flight until its result comes");
  EXPECT_DEATH(s.results.drop_tokens(runs, -1), "tokens in flight are counted");
  EXPECT_DEATH(
      {
        runs.num_output_placeholders = -1;
        s.results.drop_tokens(runs, 0);
      },
      "tokens in flight are counted");
  runs.num_tokens_in_flight = 2;
  const SampledToken sampled[] = {{RequestId{2}, 7}};
  const RequestId pooled[] = {RequestId{2}};
  s.updates.begin(1);
  EXPECT_DEATH(s.results.take(arena, {.step = {}, .sampled = sampled}), "a checked result is taken whole");
  EXPECT_DEATH(s.results.take(arena, {.step = {}, .pooled = pooled}), "a checked result is taken whole");
}

TEST_F(SpoiledPartsOfAStepDeathTest, TransfersAreOfBlocksAndRequestsThatThereAre) {
  const BlockId outside[] = {BlockId{32}};
  EXPECT_DEATH(s.unloaded.find(nullptr, outside), "a plan names blocks of the pool");
  arena.schedule(runs, {.num_tokens = 1});
  arena.table_delta(runs, 0, TableUpdate::replace_all, outside);
  arena.seal();
  EXPECT_DEATH(
      {
        runs.known = false;
        s.transfers.find_fences(arena, TransferId{0});
      },
      "a table that changes is of a request that is known");
  OpenTransfers::Entry store;
  store.direction = TransferDirection::store;
  EXPECT_DEATH(s.transfers.end_failed_load(store, {}), "a store that failed harms no request");
}

TEST_F(SpoiledPartsOfAStepDeathTest, WhoRanOnABadBlockIsLookedForAmongThoseWhoRun) {
  const std::vector<BlockId> bad = d.blocks(1);
  EXPECT_DEATH(
      {
        s.queues.running[0] = &waits;
        s.unloaded.find(nullptr, bad);
      },
      "unloaded.cpp.*who is in `running` runs");
  EXPECT_DEATH(
      {
        s.unloaded.find(nullptr, bad);
        runs.slot = kNoSlot;
        s.giving_back.give_back_running();
      },
      "giving_back.cpp.*who runs has a slot");
  arena.schedule(runs, {.num_tokens = 1});
  arena.seal();
  EXPECT_DEATH(
      {
        arena.requests_.pop_back();
        (void)s.unloaded.look_at(arena);
      },
      "a plan knows whom it schedules");
}

TEST_F(SpoiledPartsOfAStepDeathTest, WhatIsOfARequestIsCountedAndScheduledOnce) {
  const char* const last = "for the request scheduled last, once";
  EXPECT_DEATH(arena.set_drafts({}), last);
  EXPECT_DEATH(arena.set_placeholders(1), last);
  EXPECT_DEATH((void)s.running_loop.schedule_one(waits, arena), "each that runs, once");
  arena.schedule(runs, {.num_tokens = 3});
  EXPECT_DEATH((void)s.running_loop.schedule_one(runs, arena), "each that runs, once");
  arena.set_placeholders(2);
  EXPECT_DEATH(arena.set_placeholders(2), last);
  EXPECT_DEATH(
      {
        runs.num_output_tokens = runs.num_tokens() + 1;
        (void)runs.outputs();
      },
      "request.h.*outputs are among the tokens");
  const BlockId blocks[] = {BlockId{1}};
  const std::uint64_t places[] = {0};
  const auto opened = s.open_transfers.open({.id = {}, .request = RequestId{1}, .blocks = blocks, .places = places});
  ASSERT_TRUE(opened.has_value());
  const TransferCompletion over{.transfer = opened.value_or(Transfer{}).id};
  EXPECT_DEATH(s.transfers.end(over), "the transfers of a request are counted");
}

// It reports a request that nobody knows, among those whose loads failed.
class Inventive final : public Connector {
 public:
  ExternalMatch match(const RequestView& /*request*/, std::uint32_t /*num_local*/) override {
    return {.num_tokens = 8, .load_async = false};
  }
  void allocated(const RequestView& /*request*/, GroupBlocks /*blocks*/, std::uint32_t /*num_external*/) override {}
  bool finished(const RequestView& /*request*/, GroupBlocks /*blocks*/) override { return false; }
  void planned(const StepPlan& /*plan*/) override {}
  void step_output() override {}
  bool reset() override { return true; }
  void order_failed(std::size_t /*num_async*/, std::span<RequestId> finishing, std::span<RequestId> reported) override {
    (spoils_finishing ? finishing : reported)[0] = RequestId{77};
  }
  bool spoils_finishing = false;
};

TEST(SpoiledConnectorDeathTest, OnlyWhatFailedIsOrderedAndReported) {
  CoreConfig config = sync_config();
  config.kv_load_failure = KvLoadFailurePolicy::fail;
  Inventive connector;
  CoreDriver d(config, {.connector = &connector});
  d.add(1, 14, 20);
  d.plan();
  const std::vector<BlockId> bad = {d.blocks(1).at(1)};
  EXPECT_DEATH(d.apply({}, {.step = {}, .has_connector_output = true, .invalid_blocks = bad}), "the connector reports only what failed");
  connector.spoils_finishing = true;
  EXPECT_DEATH(d.apply({}, {.step = {}, .has_connector_output = true, .invalid_blocks = bad}), "the connector orders only what failed");
}

}  // namespace
}  // namespace quire
