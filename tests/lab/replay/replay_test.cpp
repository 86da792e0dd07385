// Tests the report of a replay for cores that are stepped by hand.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "lab/replay/stepped_run.h"
#include "quire/journal.h"

namespace quire::test {
namespace {

TEST(ReplayByHand, CountsWhatTheCoreDid) {
  SteppedRun run;
  play_three(run, true);
  const std::string path = run.path();
  std::vector<double> told;
  const ReplayReport report = replay(path, {.progress = [&](double done) { told.push_back(done); }}).value();
  EXPECT_FALSE(report.difference.has_value());
  EXPECT_EQ(report.damage, "");
  EXPECT_EQ(report.end, JournalEnd::stopped);
  EXPECT_EQ(report.num_calls, 12U);  // three requests, an abort, and four steps
  EXPECT_EQ(report.num_steps, 4U);
  EXPECT_EQ(report.num_requests, 3U);
  EXPECT_EQ(report.num_forks, 0U);
  EXPECT_EQ(report.num_tokens, 5U);
  EXPECT_EQ(report.num_preemptions, 0U);
  EXPECT_EQ(report.num_checkpoints, 0U);
  EXPECT_FALSE(report.start.has_value());
  EXPECT_DOUBLE_EQ(report.recorded_s, 8.0);
  EXPECT_EQ(report.last.progress, (JournalProgress{.num_calls = 12, .num_steps = 4, .now_s = 108.0}));
  EXPECT_EQ(report.last.run_start_s, report.header.start_time_s);
  EXPECT_FALSE(report.last_state.empty());
  ASSERT_FALSE(told.empty());
  EXPECT_TRUE(std::ranges::is_sorted(told));
  EXPECT_GT(told.front(), 0.0);
  EXPECT_EQ(std::ranges::count(told, 1.0), 1);
  EXPECT_EQ(told.back(), 1.0);
  EXPECT_EQ(replay("/nowhere/journal").error().to_string(),
            "JOURNAL: '/nowhere/journal' cannot be read: No such file or directory; use a file that quire serve --journal has written");
}

TEST(ReplayByHand, ReportsAnswersOfSeamsThatTheCoreDoesNotAskFor) {
  SteppedRun run;
  play_three(run, true);
  const SeamAnswer extra{.call = SeamCall::grammar_ready, .request = RequestId{1}, .question = 7, .values = {1}, .bytes = {}};
  const Planted planted = plant(run.path(), run.new_path("planted"), 1, false, &extra);
  ASSERT_EQ(planted.call, 1U);
  const ReplayReport report = replay(planted.path).value();
  ASSERT_TRUE(report.difference.has_value());
  EXPECT_EQ(report.difference->call, 1U);
  EXPECT_EQ(report.difference->what, "schedule(): 1 seam calls of the journal are missing in the replay");
  EXPECT_EQ(report.num_calls, 2U);
}

// More requests than an error text lists.
TEST(ReplayByHand, ADifferenceShowsThePlanAndTheQueues) {
  CoreConfig config = sync_config(64);
  config.scheduler.max_num_seqs = 26;
  SteppedRun run(config);
  for (std::uint64_t id = 1; id <= 52; ++id) run.add(id, 2, 4, 100.0);
  run.step(100.0, 101.0);
  run.step(101.0, 102.0);
  const Planted planted = plant(run.path(), run.new_path("planted"), 54, false);
  ASSERT_EQ(planted.call, 54U);  // the second plan
  const ReplayReport report = replay(planted.path).value();
  ASSERT_TRUE(report.difference.has_value());
  EXPECT_EQ(report.difference->call, 54U);
  EXPECT_EQ(report.difference->step, StepId{1});
  EXPECT_EQ(report.num_calls, 55U);
  std::string rows, running, waiting;
  for (int id = 1; id <= 24; ++id) {
    rows += fmt::format(" {}[2+1]", id);
    running += fmt::format(" {}", id);
    waiting += fmt::format(" {}", id + 26);
  }
  EXPECT_EQ(report.difference->state, fmt::format("last plan: step 1, 26 requests, 26 tokens:{} ...; preempted 0:; 0 transfers\n"
                                                  "running 26:{} ...\nwaiting 26:{} ...; skipped 0:\n"
                                                  "blocks: 37 of 63 free, 0 cached; 1 plans outstanding",
                                                  rows, running, waiting));
  const std::string& what = report.difference->what;
  EXPECT_TRUE(what.starts_with("schedule(): the journal has plan ")) << what;
  EXPECT_NE(what.find(", the replay has plan "), std::string::npos) << what;
  const Planted outcome = plant(planted.path, run.new_path("outcome"), 53, false);
  const ReplayReport early = replay(outcome.path).value();
  ASSERT_TRUE(early.difference.has_value());
  EXPECT_TRUE(early.difference->what.starts_with("apply(0): the journal has outcome ")) << early.difference->what;
  EXPECT_NE(early.difference->what.find(", the replay has outcome "), std::string::npos);
  EXPECT_EQ(early.difference->step, StepId{0});
  // Another configuration differs in its first plan.
  const ReplayReport changed = replay(planted.path, {.change_config = [](CoreConfig& other) { other.scheduler.max_num_seqs = 3; }}).value();
  ASSERT_TRUE(changed.difference.has_value());
  EXPECT_EQ(changed.difference->call, 52U);
  EXPECT_TRUE(
      changed.difference->state.starts_with("last plan: step 0, 3 requests, 6 tokens: 1[0+2] 2[0+2] 3[0+2]; preempted 0:; 0 transfers\n"
                                            "running 3: 1 2 3\nwaiting 49: 4 5 "))
      << changed.difference->state;
}

}  // namespace
}  // namespace quire::test
