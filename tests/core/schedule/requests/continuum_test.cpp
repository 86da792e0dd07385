// Tests SchedulingPolicy::continuum: the order of jobs, pins and their ends, and which request is preempted.
#include <gtest/gtest.h>

#include "core/schedule/requests/turns.h"

namespace quire::test {
namespace {

TEST(Continuum, AdmitsTheEarliestJobFirstAndRequestsWithoutAJobLast) {
  CoreConfig config = continuum_config(32);
  config.scheduler.max_num_seqs = 1;
  CoreDriver d(config);
  d.add(1, 4, 1);
  d.now += 0.5;
  add_turn(d, 2, 4, {.job = "a", .is_last_step = true});
  d.now += 0.5;
  add_turn(d, 3, 4, {.job = "b", .is_last_step = true});
  d.now += 0.5;
  add_turn(d, 4, 4, {.job = "a", .is_last_step = true});
  Ids order;
  for (int i = 0; i < 4; ++i) {
    order.push_back(scheduled_ids(d.plan()).at(0));
    d.apply();
  }
  EXPECT_EQ(order, Ids({2, 4, 3, 1}));
}

TEST(Continuum, AdmitsTheTurnOfAPinnedJobFirst) {
  CoreConfig config = continuum_config(32);
  config.scheduler.max_num_seqs = 1;
  CoreDriver d(config);
  add_turn(d, 1, 4, {.job = "old"});
  d.step();
  add_turn(d, 2, 4, {.job = "pinned", .tool = "ls"});
  d.step();
  EXPECT_EQ(pinned(d), Ids({2}));
  add_turn(d, 3, 4, {.job = "old"});
  add_turn(d, 4, 4, {.job = "pinned"});
  EXPECT_EQ(scheduled_ids(d.plan()), Ids({4}));
  d.apply();
}

TEST(Continuum, KeepsTheBlocksOfATurnUntilThePinExpires) {
  CoreDriver d(continuum_config(32));
  add_turn(d, 1, 8, {.job = "job", .tool = "ls"});
  const Outcome outcome = d.step();
  ASSERT_EQ(outcome.updates.size(), 1U);
  EXPECT_TRUE(outcome.updates[0].finished);
  EXPECT_TRUE(outcome.retired.empty()) << "the core still refers to the request";
  EXPECT_FALSE(d.core->has_work());
  EXPECT_EQ(d.core->counters().num_pinned, 1U);
  EXPECT_EQ(d.core->next_deadline(), d.now + 10.0);
  EXPECT_FALSE(d.core->all_blocks_free());
  d.now = *d.core->next_deadline() - 1.5;
  d.step();  // plans 0.5 s before the deadline
  EXPECT_EQ(pinned(d), Ids({1}));
  const StepPlan& plan = d.plan();
  EXPECT_EQ(plan.num_scheduled_tokens, 0U);
  EXPECT_TRUE(d.core->all_blocks_free());
  EXPECT_EQ(d.apply().retired, Ids({1}));
  EXPECT_EQ(d.core->next_deadline(), std::nullopt);
}

TEST(Continuum, ReportsTheEndOfAPinnedRequestToTheWorkerImmediately) {
  CoreDriver d(continuum_config(32));
  add_turn(d, 1, 8, {.job = "job", .tool = "ls"});
  d.step();
  const StepPlan& plan = d.plan();
  EXPECT_EQ(values(plan.finished), Ids({1}));
  EXPECT_EQ(plan.released.size(), 1U);
  d.apply();
}

TEST(Continuum, KeepsOnePinPerJob) {
  CoreDriver d(continuum_config(32));
  add_turn(d, 1, 8, {.job = "job", .tool = "ls"});
  d.step();
  add_turn(d, 2, 8, {.job = "job", .tool = "ls"});
  EXPECT_EQ(d.step().retired, Ids({1}));
  EXPECT_EQ(pinned(d), Ids({2}));
}

TEST(Continuum, SeparatesJobsOfDifferentTenants) {
  CoreDriver d(continuum_config(32));
  add_turn(d, 1, 8, {.job = "job", .tool = "ls", .tenant = "a"});
  d.step();
  add_turn(d, 2, 4, {.job = "job", .tool = "ls", .tenant = "b"});
  add_turn(d, 3, 4, {.job = "job", .tool = "ls"});
  add_turn(d, 4, 4, {.job = "1:ajob", .tool = "ls"});
  d.step();
  EXPECT_EQ(pinned(d), Ids({1, 2, 3, 4})) << "no other tenant replaces the pin, whatever its job is called";
  add_turn(d, 5, 4, {.job = "job", .tool = "ls", .tenant = "a"});
  d.step();
  EXPECT_EQ(pinned(d), Ids({2, 3, 4, 5}));
}

TEST(Continuum, ReusesThePinnedBlocksInTheNextTurn) {
  CoreDriver d(continuum_config(7));
  const Tokens prompt = CoreDriver::prompt(1, 13);
  NewRequest first = CoreDriver::request(1, prompt, 1);
  const RequestTags tags{.job = "job", .tool = "ls"};
  first.tags = &tags;
  d.add(first);
  d.step();
  d.add(2, 5, 1);  // would take the blocks of the first turn if they were free
  d.step();
  NewRequest second = CoreDriver::request(3, prompt, 1);
  second.tags = &tags;
  d.add(second);
  d.step();
  EXPECT_EQ(d.view(3).num_cached_tokens, 12);
}

TEST(Continuum, DoesNotPinALastStepAJoblessRequestOrAnUnknownTool) {
  CoreDriver d(continuum_config(32));
  add_turn(d, 1, 4, {.job = "job", .is_last_step = true, .tool = "ls"});
  add_turn(d, 2, 4, {.tool = "ls"});
  add_turn(d, 3, 4, {.job = "other"});
  d.step();
  EXPECT_EQ(pinned(d), Ids());
  EXPECT_TRUE(d.core->all_blocks_free());
}

TEST(Continuum, DoesNotPinForAToolThatTakesTooLong) {
  CoreDriver d(continuum_config(32));
  add_turn(d, 1, 4, {.job = "job", .tool = "make"});
  d.step();
  d.now += 100.0;
  add_turn(d, 2, 4, {.job = "job", .tool = "make"});
  d.step();
  EXPECT_EQ(pinned(d), Ids());
}

class Namer final : public ToolNamer {
 public:
  std::string tool_of(const RequestView& request) override {
    asked.push_back(request.id.value);
    return request.tokens.back() == kSomeToken ? "ls" : "";
  }
  Ids asked;
};

TEST(Continuum, AsksForTheToolWhenTheTagsDoNotNameIt) {
  Namer namer;
  CoreDriver d(continuum_config(32), {.tools = &namer});
  add_turn(d, 1, 4, {.job = "a"});
  add_turn(d, 2, 4, {.job = "b", .tool = "cat"});
  add_turn(d, 3, 4, {.job = "c", .is_last_step = true});
  add_turn(d, 4, 4, {});
  d.step();
  EXPECT_EQ(namer.asked, Ids({1}));
  EXPECT_EQ(pinned(d), Ids({1, 2}));
}

TEST(Continuum, PreemptsTheLastRunningRequestWhoseJobIsNotPinned) {
  CoreDriver d(continuum_config(7));
  add_turn(d, 1, 3, {.job = "p", .tool = "ls"});
  d.step();
  d.add(2, 8, 8);
  d.step();
  add_turn(d, 3, 7, {.job = "p"}, 8);
  d.step();
  EXPECT_EQ(values(d.snapshot().running), Ids({2, 3}));
  d.step();
  const StepPlan& plan = d.plan();
  EXPECT_EQ(values(plan.preempted), Ids({2})) << "request 3 is last, but its job is pinned";
  d.apply();
}

}  // namespace
}  // namespace quire::test
