// Tests when no request is admitted: the watermark and the two marks of pressure.
#include <gtest/gtest.h>

#include <limits>

#include "core/schedule/core_driver.h"
#include "core/schedule/harness.h"
#include "quire/base/events.h"
#include "support/scripted_connector.h"

namespace quire::test {
namespace {

EventLog pressure_events() {
  return {EventKind::pressure_high, EventKind::pressure_low, EventKind::admission_blocked, EventKind::preempted};
}
std::vector<Event> marks_of(const EventLog& events) {
  return events.of({EventKind::pressure_high, EventKind::pressure_low});
}

// Makes a config with 20 blocks of 4 tokens.
CoreConfig pressure_config(const PressureOptions& pressure) {
  CoreConfig config = sync_config(21);
  config.pressure = pressure;
  config.scheduler.max_num_batched_tokens = 128;
  return config;
}

TEST(Pressure, KeepsTheWatermarkFreeOnAdmission) {
  CoreDriver d(pressure_config({.admission_watermark = 0.1}));
  d.add(1, 40, 4);
  d.add(2, 32, 4);  // needs 8 blocks; 10 are free
  d.add(3, 4, 4);
  EXPECT_EQ(scheduled_ids(d.plan()), Ids({1, 2})) << "2 free blocks satisfy the watermark";
  d.apply();
  EXPECT_EQ(scheduled_ids(d.plan()), Ids({1, 2})) << "running requests may take the last blocks";
  d.apply();
  EXPECT_EQ(d.core->counters().num_free_blocks, 0U);
  EXPECT_EQ(d.view(3).status, RequestStatus::waiting);
}

TEST(Pressure, RefusesAnAdmissionThatLeavesOneBlockBelowTheWatermark) {
  for (const double watermark : {0.05, 0.051}) {
    CoreDriver d(pressure_config({.admission_watermark = watermark}));
    d.add(1, 64, 4);
    d.step();
    d.add(2, 8, 4);  // needs 2 of 3 free blocks (request 1 has its 17th)
    EXPECT_EQ(scheduled_ids(d.plan()).size(), watermark == 0.05 ? 2U : 1U) << "the watermark is one block, or rounds up to two";
    d.apply();
  }
}

TEST(Pressure, AdmitsARequestThatFitsWhileNothingRuns) {
  CoreDriver d(pressure_config({.admission_watermark = 0.5, .pressure_high = 0.1, .pressure_low = 0.05}));
  d.add(1, 60, 4);
  d.add(2, 60, 4);
  EXPECT_EQ(scheduled_ids(d.plan()), Ids({1}));
  d.apply();
  EXPECT_TRUE(d.core->counters().is_admission_stopped);
  d.core->finish(RequestId{1}, RequestStatus::finished_aborted);
  EXPECT_EQ(scheduled_ids(d.plan()), Ids({2}));
  d.apply();
}

// Admission stops above 0.8 and continues only below 0.4.
TEST(Pressure, StopsAdmissionAboveTheUpperMarkUntilBelowTheLowerMark) {
  EventLog events = pressure_events();
  CoreDriver d(pressure_config({.pressure_high = 0.8, .pressure_low = 0.4}), {.events = &events});
  for (std::uint64_t id = 1; id <= 4; ++id) d.add(id, 16, 20);
  EXPECT_EQ(scheduled_ids(d.plan()), Ids({1, 2, 3, 4})) << "16 of 20 blocks are not above 0.8";
  EXPECT_TRUE(marks_of(events).empty());
  d.apply();
  d.add(5, 4, 4);
  d.plan();  // each request takes its fifth block
  EXPECT_EQ(d.scheduled(5), 0U);
  ASSERT_EQ(marks_of(events).size(), 1U);
  EXPECT_EQ(marks_of(events)[0].what, EventKind::pressure_high);
  EXPECT_EQ(marks_of(events)[0].cause, EventCause::above_high);
  EXPECT_EQ(marks_of(events)[0].amount, 20U);
  EXPECT_EQ(marks_of(events)[0].total, 20U);
  ASSERT_EQ(events.of({EventKind::admission_blocked}).size(), 1U);
  EXPECT_EQ(events.of({EventKind::admission_blocked})[0].cause, EventCause::above_high);
  d.apply();
  EXPECT_EQ(d.core->counters().num_admission_stops, 1U);
  for (const std::uint64_t gone : {4U, 3U}) {
    d.core->finish(RequestId{gone}, RequestStatus::finished_aborted);
    d.plan();
    EXPECT_EQ(d.scheduled(5), 0U) << "15 and then 10 blocks are not below 0.4";
    d.apply();
  }
  EXPECT_TRUE(d.core->counters().is_admission_stopped);
  d.core->finish(RequestId{2}, RequestStatus::finished_aborted);
  d.plan();
  EXPECT_EQ(d.scheduled(5), 4U);
  d.apply();
  EXPECT_FALSE(d.core->counters().is_admission_stopped);
  ASSERT_EQ(marks_of(events).size(), 2U);
  EXPECT_EQ(marks_of(events)[1].what, EventKind::pressure_low);
  EXPECT_EQ(marks_of(events)[1].cause, EventCause::below_low);
  EXPECT_EQ(marks_of(events)[1].amount, 5U);
}

TEST(Pressure, StopsAdmissionWithinAStep) {
  CoreDriver d(pressure_config({.pressure_high = 0.3, .pressure_low = 0.2}));
  for (std::uint64_t id = 1; id <= 3; ++id) d.add(id, 16, 4);
  EXPECT_EQ(scheduled_ids(d.plan()), Ids({1, 2})) << "4 blocks are below 0.3 and 8 blocks are above";
  d.apply();
}

// No request needs a block when request 4 is preempted.
TEST(Pressure, PreemptsTheLastRequestAboveTheMarkWhenEnabled) {
  for (const bool preempts : {false, true}) {
    EventLog events = pressure_events();
    CoreDriver d(pressure_config({.pressure_high = 0.8, .pressure_low = 0.4, .pressure_preempts = preempts}), {.events = &events});
    for (std::uint64_t id = 1; id <= 4; ++id) d.add(id, 16, 20);
    d.step();
    d.add(5, 4, 4);
    d.step();  // each request takes its fifth block
    EXPECT_EQ(d.core->counters().num_pressure_preemptions, 0U);
    d.plan();
    EXPECT_EQ(d.view(4).status, preempts ? RequestStatus::preempted : RequestStatus::running);
    EXPECT_EQ(d.view(3).status, RequestStatus::running) << "15 of 20 blocks are not above the mark";
    ASSERT_EQ(events.of({EventKind::preempted}).size(), preempts ? 1U : 0U);
    if (preempts) EXPECT_EQ(events.of({EventKind::preempted})[0].cause, EventCause::above_high);
    EXPECT_EQ(d.core->counters().num_pressure_preemptions, preempts ? 1U : 0U);
    d.apply();
    d.plan();
    EXPECT_EQ(d.scheduled(5), 0U) << "not below 0.4 yet";
    d.apply();
  }
}

TEST(Pressure, PreemptsTheLastOfTwoRunningRequests) {
  CoreDriver d(pressure_config({.pressure_high = 0.4, .pressure_low = 0.1, .pressure_preempts = true}));
  d.add(1, 16, 20);
  d.add(2, 16, 20);
  d.step();
  ASSERT_EQ(d.core->counters().num_running, 2U) << "8 of 20 blocks are not above the mark";
  d.step();
  d.plan();
  EXPECT_EQ(d.view(2).status, RequestStatus::preempted) << "10 blocks are above the mark";
  EXPECT_GT(d.scheduled(1), 0U);
  EXPECT_EQ(d.core->counters().num_pressure_preemptions, 1U);
  d.apply();
}

TEST(Pressure, DoesNotPreemptTheOnlyRunningRequest) {
  CoreDriver d(pressure_config({.pressure_high = 0.2, .pressure_low = 0.1, .pressure_preempts = true}));
  d.add(1, 40, 3);
  for (int i = 0; i < 3; ++i) {
    d.plan();
    EXPECT_GT(d.scheduled(1), 0U);
    d.apply();
  }
  EXPECT_TRUE(d.core->all_blocks_free());
}

TEST(Pressure, RefusesOptionsOutOfRange) {
  const auto field = [](const PressureOptions& pressure) {
    const auto valid = pressure_config(pressure).validate();
    return valid ? "" : valid.error().field;
  };
  EXPECT_EQ(field({.admission_watermark = 0.99}), "");
  EXPECT_EQ(field({.pressure_high = 1.0, .pressure_low = 1.0}), "");
  for (const double watermark : {-0.1, 1.0, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_EQ(field({.admission_watermark = watermark}), "pressure.admission_watermark");
  for (const auto& [high, low] : std::vector<std::pair<double, double>>{{1.1, 0.5}, {0.5, 0.6}, {0.5, 0.0}, {0.0, 0.1}, {0.5, -0.1}})
    EXPECT_EQ(field({.pressure_high = high, .pressure_low = low}), "pressure.pressure_high");
}

// Compares the core with a naive model of when admission stops and continues. Every request must finish.
TEST(PressureModel, FollowsTheMarksAndFinishesEveryRequest) {
  std::uint64_t num_stops = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    CoreConfig config = small_config(24);
    config.pressure = {.admission_watermark = random.unit() * 0.3, .pressure_high = 0.3 + random.unit() * 0.7, .pressure_low = 0.0};
    config.pressure.pressure_low = config.pressure.pressure_high * (0.2 + random.unit() * 0.8);
    config.scheduler.reserve_full_isl = random.chance(0.5);
    if (random.chance(0.3)) config.scheduler.policy = SchedulingPolicy::priority;
    EventLog events = pressure_events();
    Harness h(config, {.events = &events});
    for (std::uint64_t id = 0; id < 60; ++id) h.add(random_request(random, RequestId{id}, 80));
    bool is_stopped = false;
    std::size_t num_seen = 0;
    while (h.core->has_work()) {
      const bool was_stopped = is_stopped;
      const StepPlan& plan = h.plan();
      const std::size_t num_before = num_seen;
      const std::vector<Event> marks = marks_of(events);
      for (; num_seen < marks.size(); ++num_seen) {
        const Event& mark = marks[num_seen];
        const double pressure = static_cast<double>(mark.amount) / mark.total;
        ASSERT_EQ(mark.what == EventKind::pressure_high, !is_stopped);
        ASSERT_TRUE(is_stopped ? pressure < config.pressure.pressure_low : pressure > config.pressure.pressure_high);
        is_stopped = !is_stopped;
      }
      const CoreCounters counters = h.core->counters();
      ASSERT_EQ(counters.is_admission_stopped, is_stopped);
      const double pressure = 1.0 - static_cast<double>(counters.num_free_blocks) / counters.num_blocks;
      ASSERT_TRUE(is_stopped ? pressure >= config.pressure.pressure_low : pressure <= config.pressure.pressure_high);
      if (was_stopped && num_seen == num_before) ASSERT_TRUE(plan.admitted.empty()) << "seed " << seed;
      h.apply_oldest();
      ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
    }
    h.run_to_end();
    num_stops += h.core->counters().num_admission_stops;
  }
  EXPECT_GT(num_stops, 300U) << "too few stops of admission";
}

}  // namespace
}  // namespace quire::test
