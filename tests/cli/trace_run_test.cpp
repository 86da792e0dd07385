#include "cli/trace_run.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace quire {
namespace {

constexpr const char* kRun =
    R"({"event":"step_snapshot","step":0,"ts":100.0,"policy":"continuum","free_blocks":9,"total_blocks":11,"num_running":0,"num_waiting":1,"num_pinned":0,"running_req_ids":[],"waiting_req_ids":["7"],"running_job_ids":[],"waiting_job_ids":["<job>"],"pinned_blocks":0}
{"event":"prefix_cache_lookup","step":0,"total_hit_tokens":16}
{"event":"step_decision","step":0,"scheduled_new_req_ids":["7"],"scheduled_resumed_req_ids":[],"scheduled_running_req_ids":[],"preempted_req_ids":[],"num_scheduled_tokens":{"7":5}}
not JSON
{"event":"step_snapshot","step":1,"ts":100.5,"policy":"continuum","free_blocks":4,"total_blocks":11,"num_running":1,"num_waiting":0,"num_pinned":1,"running_req_ids":["7"],"waiting_req_ids":[],"running_job_ids":["<job>"],"waiting_job_ids":[],"pinned_blocks":3,"quire":{"pinned_req_ids":["3"]}}
{"event":"step_decision","step":1,"scheduled_new_req_ids":[],"preempted_req_ids":["7"],"num_scheduled_tokens":{}}
)";

TraceRun run_of(const char* text, std::uint64_t first = 0, std::size_t most = 100) {
  std::istringstream in(text);
  return TraceRun::read(in, first, most).value();
}

TEST(TraceRun, ReadsEachStep) {
  const TraceRun run = run_of(kRun);
  EXPECT_EQ(run.policy, "continuum");
  EXPECT_EQ(run.num_bad_lines, 1U);
  ASSERT_EQ(run.rows.size(), 2U);
  EXPECT_EQ(run.rows[0].num_waiting, 1U);
  EXPECT_EQ(run.rows[0].num_new, 1U);
  EXPECT_EQ(run.rows[0].num_tokens, 5U);
  EXPECT_EQ(run.rows[0].hit_tokens, 16U);
  EXPECT_EQ(run.rows[1].time_s, 0.5);
  EXPECT_EQ(run.rows[1].num_preempted, 1U);
  EXPECT_EQ(run.rows[1].pinned_blocks, 3U);
  ASSERT_EQ(run.lanes.size(), 2U);
  EXPECT_EQ(run.lanes[0].job, "<job>");
  EXPECT_EQ(run.lanes[0].states, (std::vector{LaneState::computed, LaneState::preempted}));
  EXPECT_EQ(run.lanes[1].request, "3");
  EXPECT_EQ(run.lanes[1].states, std::vector{LaneState::pinned});
  EXPECT_EQ(run.lanes[1].first, 1U);
}

TEST(TraceRun, ReadsOnlyTheRequestedSteps) {
  EXPECT_EQ(run_of(kRun, 1).rows.at(0).step, 1U);
  EXPECT_EQ(run_of(kRun, 0, 1).rows.size(), 1U);
  std::istringstream in("\n");
  EXPECT_EQ(TraceRun::read(in, 0, 100).error().field, "PATH");
}

TEST(TraceRun, TableHasARowPerStep) {
  EXPECT_EQ(trace_table(run_of(kRun)),
            "policy continuum\n"
            "    step         s running waiting pinned  tokens  new resumed preempted     hit    free  pinned\n"
            "       0     0.000       0       1      0       5    1       0         0      16       9       0\n"
            "       1     0.500       1       0      1       0    0       0         1       0       4       3\n"
            "running, waiting, pinned, free and pinned blocks: at the start of the step; hit: prompt tokens found in a cache\n"
            "1 lines are not valid JSON\n");
}

TEST(TraceRun, PerfettoHasALanePerRequestWithItsStates) {
  const boost::json::value perfetto = boost::json::parse(trace_perfetto(run_of(kRun)));
  std::size_t num_lanes = 0;
  std::vector<std::string> names;
  for (const boost::json::value& value : perfetto.at("traceEvents").as_array()) {
    const boost::json::object& event = value.as_object();
    if (event.at("ph").as_string() == "M" && event.at("name").as_string() == "thread_name") ++num_lanes;
    if (event.at("ph").as_string() != "X") continue;
    names.emplace_back(event.at("name").as_string());
    if (names.back() != "prefill") continue;
    EXPECT_EQ(event.at("ts").to_number<double>(), 0.0);
    EXPECT_EQ(event.at("dur").to_number<double>(), 500000.0);
    EXPECT_EQ(event.at("args").at("tokens").to_number<int>(), 5);
  }
  EXPECT_EQ(num_lanes, 2U);
  EXPECT_EQ(names, (std::vector<std::string>{"prefill", "preempted", "pinned"}));
}

TEST(TraceRun, ShowsRequestsThatWaitForATier) {
  const TraceRun run = run_of(
      R"({"event":"step_snapshot","step":4,"ts":1.0,"waiting_req_ids":["7","8"],"waiting_job_ids":[]}
{"event":"quire","step":4,"what":"passed_over","cause":"loading","owner":"7"}
{"event":"quire","step":4,"what":"passed_over","cause":"grammar","owner":"8"}
)");
  EXPECT_EQ(run.lanes.at(0).states, std::vector{LaneState::loading});
  EXPECT_EQ(run.lanes.at(1).states, std::vector{LaneState::waiting});
}

}  // namespace
}  // namespace quire
