// Tests SchedulingPolicy::continuum: each fix of a fault in the original implementation, and the events about pins.
#include <gtest/gtest.h>

#include "core/schedule/requests/turns.h"
#include "quire/base/events.h"
#include "support/scripted_connector.h"

namespace quire::test {
namespace {

// The original implementation frees the victim's blocks and leaves the victim in the plan.
TEST(ContinuumFixes, RemoveAVictimOfThisStepFromThePlan) {
  CoreDriver d(continuum_config(7));
  add_turn(d, 1, 3, {.job = "p", .tool = "ls"});
  d.step();
  d.add(2, 7, 8);
  add_turn(d, 3, 8, {.job = "p"}, 8);
  d.step();
  ASSERT_EQ(values(d.snapshot().running), Ids({3, 2})) << "the pinned job is first";
  d.core->finish(RequestId{3}, RequestStatus::finished_stopped, {.now = d.now});
  add_turn(d, 4, 8, {.job = "p"}, 8);
  d.step();
  ASSERT_EQ(values(d.snapshot().running), Ids({2, 4}));
  const StepPlan& plan = d.plan();
  EXPECT_EQ(values(plan.preempted), Ids({2}));
  EXPECT_EQ(scheduled_ids(plan), Ids({4})) << "request 2 was scheduled first and then preempted";
  EXPECT_EQ(plan.num_scheduled_tokens, 1U);
  d.apply();
}

// Blocks under a pin and a transfer stay until both end. The original implementation forgets the request at the end of the transfer.
TEST(ContinuumFixes, KeepBlocksUntilBothThePinAndTheTransferEnd) {
  const RequestId one[] = {RequestId{1}};
  for (const bool transfer_first : {true, false}) {
    ScriptedConnector keeper;
    keeper.keeps_all = true;
    CoreDriver d(continuum_config(32), {.connector = &keeper});
    add_turn(d, 1, 8, {.job = "job", .tool = "ls"});
    d.step();
    EXPECT_EQ(d.core->counters().num_awaiting_transfers, 1U);
    if (!transfer_first) {
      d.now += 100.0;
      d.step();
      EXPECT_EQ(pinned(d), Ids());
      EXPECT_FALSE(d.core->all_blocks_free());
    }
    d.plan();
    d.apply({}, {.has_connector_output = true, .finished_sending = one});
    EXPECT_EQ(d.core->counters().num_awaiting_transfers, 0U);
    EXPECT_EQ(d.core->all_blocks_free(), !transfer_first);
    d.now += 100.0;
    d.step();
    EXPECT_TRUE(d.core->all_blocks_free());
  }
}

TEST(ContinuumFixes, RefuseTheEndOfATransferThatDidNotBegin) {
  const RequestId one[] = {RequestId{1}};
  CoreDriver d(continuum_config(32));
  add_turn(d, 1, 8, {.job = "job", .tool = "ls"});
  d.step();
  const StepPlan& plan = d.plan();
  const auto applied = d.core->apply({.step = plan.step, .has_connector_output = true, .finished_sending = one});
  ASSERT_FALSE(applied.has_value());
  EXPECT_EQ(applied.error().field, "finished_sending");
}

TEST(ContinuumFixes, PinsBlockOtherRequestsWithoutTheFix) {
  CoreDriver d(continuum_config(7));
  add_turn(d, 1, 16, {.job = "job", .tool = "ls"});
  d.step();
  d.add(2, 16, 1);
  EXPECT_TRUE(scheduled_ids(d.plan()).empty());
  d.apply();
}

TEST(ContinuumFixes, EndTheOldestPinFirstWhenBlocksAreMissing) {
  CoreConfig config = continuum_config(10);
  config.continuum.pins_give_way = true;
  config.continuum.pin_s = 1000.0;
  CoreDriver d(config);
  for (const std::uint64_t id : {1, 2}) {
    add_turn(d, id, 12, {.job = "job" + std::to_string(id), .tool = "ls"});
    d.step();
  }
  EXPECT_EQ(pinned(d), Ids({1, 2}));
  d.add(3, 16, 8);
  EXPECT_EQ(scheduled_ids(d.plan()), Ids({3}));
  d.apply();
  EXPECT_EQ(pinned(d), Ids({2})) << "ending one pin was enough for 4 blocks";
  for (int i = 0; i < 6; ++i) d.step();
  EXPECT_EQ(pinned(d), Ids({2}));
  d.add(4, 28, 1);
  EXPECT_EQ(scheduled_ids(d.plan()), Ids({3}));
  d.apply();
  EXPECT_EQ(pinned(d), Ids({2})) << "a request that waits while another runs ends no pin";
  d.step();
  EXPECT_EQ(pinned(d), Ids());
  EXPECT_EQ(d.core->counters().num_preemptions, 0U);
}

// The pin puts its turn in front. Without the pin the turn of another job comes first.
TEST(ContinuumFixes, EndAPinForTheTurnThatItPutInFront) {
  CoreConfig config = continuum_config(10);
  config.continuum.pins_give_way = true;
  CoreDriver d(config);
  add_turn(d, 1, 4, {.job = "old"});
  d.step();
  add_turn(d, 2, 12, {.job = "pinned", .tool = "ls"});
  d.step();
  add_turn(d, 3, 4, {.job = "old"});
  add_turn(d, 4, 32, {.job = "pinned"});
  EXPECT_EQ(scheduled_ids(d.plan()), Ids({4, 3}));
  EXPECT_EQ(pinned(d), Ids());
  d.apply();
}

TEST(ContinuumFixes, EndPinsBeforePreemptingARunningRequest) {
  for (const bool give_way : {false, true}) {
    CoreConfig config = continuum_config(6);
    config.continuum.pins_give_way = give_way;
    config.continuum.pin_s = 1000.0;
    CoreDriver d(config);
    add_turn(d, 1, 4, {.job = "job", .tool = "ls"});
    d.step();
    d.add(2, 7, 4);
    d.add(3, 5, 4);
    for (int i = 0; i < 3; ++i) d.step();
    EXPECT_EQ(d.core->counters().num_preemptions, give_way ? 0U : 1U);
  }
}

TEST(ContinuumFixes, RequestsWithoutAJobDoNotStarveWithTheFix) {
  for (const bool in_order : {false, true}) {
    CoreConfig config = continuum_config(64);
    config.scheduler.max_num_seqs = 1;
    config.continuum.jobless_in_order = in_order;
    CoreDriver d(config);
    d.add(1000, 4, 1);
    bool served = false;
    for (std::uint64_t id = 1; id <= 20 && !served; ++id) {
      d.now += 0.1;
      add_turn(d, id, 4, {.job = "job" + std::to_string(id)});  // a new job before each step
      served = scheduled_ids(d.plan()) == Ids({1000});
      d.apply();
    }
    EXPECT_EQ(served, in_order);
  }
}

TEST(ContinuumFixes, EndPinsWithTheirJob) {
  for (const bool fixed : {false, true}) {
    CoreConfig config = continuum_config(32);
    config.continuum.pins_end_with_job = fixed;
    CoreDriver d(config);
    const RequestTags turn{.job = "job", .tool = "ls"};
    add_turn(d, 1, 4, turn);
    d.step();
    add_turn(d, 2, 4, {.job = "job", .is_last_step = true});
    d.step();
    EXPECT_EQ(pinned(d), fixed ? Ids() : Ids({1})) << "the last step ends the pin with the fix";
    add_turn(d, 3, 4, turn, 8);
    d.step();
    d.core->finish(RequestId{3}, RequestStatus::finished_aborted, {.now = d.now});
    EXPECT_EQ(pinned(d), fixed ? Ids() : Ids({3})) << "an aborted turn ends the pin with the fix";
    add_turn(d, 4, 4, turn);
    d.step();
    EXPECT_EQ(pinned(d), Ids({4}));
    EXPECT_EQ(d.core->reset_prefix_cache(false, false, {.now = d.now}), fixed) << "pins make a reset fail without the fix";
    EXPECT_EQ(pinned(d), fixed ? Ids() : Ids({4}));
    if (!fixed) continue;
    EXPECT_LT(d.core->next_deadline().value(), d.now) << "request 4 is retired but not yet reported";
    EXPECT_EQ(d.step().retired, Ids({4}));
    EXPECT_EQ(d.core->next_deadline(), std::nullopt);
  }
}

TEST(ContinuumFixes, EndPinsFreesAllBlocks) {
  CoreDriver d(continuum_config(32));
  add_turn(d, 1, 4, {.job = "a", .tool = "ls"});
  add_turn(d, 2, 4, {.job = "b", .tool = "ls"});
  d.step();
  d.core->end_pins();
  EXPECT_TRUE(d.core->all_blocks_free());
  EXPECT_LT(d.core->next_deadline().value(), d.now) << "retired requests must be reported";
  EXPECT_EQ(d.step().retired, Ids({1, 2}));
  EXPECT_EQ(d.core->next_deadline(), std::nullopt);
}

TEST(ContinuumFixes, ReportPinsAndTheirEndsAsEvents) {
  CoreConfig config = continuum_config(10);
  config.continuum.longest_tool_s = 1000.0;  // the first pin expires while the tool runs
  config.continuum.pins_give_way = true;
  config.continuum.pins_end_with_job = true;
  EventLog events{EventKind::pinned, EventKind::unpinned, EventKind::preempted};
  CoreDriver d(config, {.events = &events});
  const auto cause_of_end = [&] {
    const Event event = events.all.empty() ? Event{} : events.all.back();
    EXPECT_EQ(event.what, EventKind::unpinned);
    events.all.clear();
    return event.cause;
  };
  const RequestTags turn{.job = "job", .tool = "ls"};
  add_turn(d, 1, 8, turn);
  d.step();
  ASSERT_EQ(events.all.size(), 1U);
  EXPECT_EQ(events.all[0].what, EventKind::pinned);
  EXPECT_EQ(events.all[0].owner, RequestId{1});
  EXPECT_EQ(events.all[0].amount, 2U) << "number of blocks";
  d.now += 100.0;
  d.step();
  EXPECT_EQ(cause_of_end(), EventCause::expired);
  add_turn(d, 2, 8, turn);
  d.step();
  d.add(3, 33, 1);
  d.step();
  EXPECT_EQ(cause_of_end(), EventCause::lack_of_blocks);
  add_turn(d, 4, 8, turn);
  d.step();
  d.core->end_pins();
  EXPECT_EQ(cause_of_end(), EventCause::ended_by_host);
  add_turn(d, 5, 8, turn);
  d.step();
  add_turn(d, 6, 8, {.job = "job", .is_last_step = true});
  d.step();
  EXPECT_EQ(cause_of_end(), EventCause::job_over);
}

TEST(ContinuumFixes, RefuseInvalidConfigurations) {
  for (const double seconds : {-1.0, 3601.0, 31e6, std::numeric_limits<double>::quiet_NaN()}) {
    CoreConfig config = continuum_config(32);
    config.continuum.pin_s = seconds;
    ASSERT_FALSE(config.validate().has_value()) << seconds;
    EXPECT_EQ(config.validate().error().field, "continuum.pin_s");
  }
  CoreConfig config = continuum_config(32);
  config.continuum.max_jobs = 0;
  EXPECT_EQ(config.validate().error().field, "continuum.max_jobs");
}

}  // namespace
}  // namespace quire::test
