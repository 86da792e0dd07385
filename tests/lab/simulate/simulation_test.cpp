// Tests whole simulations: arrivals, routing, closed loops and counters.
#include <numeric>

#include "lab/lab_support.h"
#include "lab/simulate/load_samples.h"

namespace quire {
namespace {

using test::request_at;
using test::small_options;
using test::workload_of;

TEST(Simulation, IsDeterministic) {
  SimulationOptions options = small_options(true);
  options.num_instances = 3;
  options.routing = Routing::by_prefix;
  const auto once = simulate(test::random_workload(3), options).value(), twice = simulate(test::random_workload(3), options).value();
  EXPECT_EQ(simulation_json(once, options), simulation_json(twice, options));
  EXPECT_NE(simulation_json(once, options), simulation_json(simulate(test::random_workload(4), options).value(), options));
}

TEST(Simulation, EveryRequestEndsAndAllTokensAreCounted) {
  const Workload workload = test::random_workload(5, 400);
  SimulationOptions options = small_options(true);
  options.num_blocks = 40;
  options.num_instances = 2;
  const auto result = simulate(workload, options).value();
  std::uint64_t prompt = 0, output = 0;
  for (const WorkloadRequest& request : workload.requests) prompt += request.prompt_tokens, output += request.output_tokens;
  EXPECT_EQ(result.num_finished + result.num_refused, workload.requests.size());
  EXPECT_EQ(result.num_stuck, 0U);
  if (result.num_refused == 0) EXPECT_EQ(result.prompt_tokens, prompt);
  if (result.num_refused == 0) EXPECT_EQ(result.output_tokens, output);
  EXPECT_GE(result.computed_tokens, result.prompt_tokens - result.cached_tokens + result.output_tokens - result.num_finished);
  for (const RequestTimes& times : result.requests) {
    if (times.refused) continue;
    EXPECT_LE(times.arrival_s, times.scheduled_s);
    EXPECT_LT(times.scheduled_s, times.first_token_s);
    EXPECT_LE(times.first_token_s, times.last_token_s);
  }
  EXPECT_LE(result.kv_usage_peak, 1.0);
  EXPECT_LE(result.busy_share, 1.0 + 1e-9);
}

TEST(Simulation, NextTurnArrivesAThinkTimeAfterTheLast) {
  std::vector<WorkloadRequest> turns = {request_at(1.0, 20, 5), request_at(7.5, 30, 5), request_at(0.0, 40, 5)};
  turns[1].after = 0;
  turns[2].after = 1;
  const auto result = simulate(workload_of(turns), small_options(true)).value();
  EXPECT_DOUBLE_EQ(result.requests[0].arrival_s, 1.0);
  EXPECT_DOUBLE_EQ(result.requests[1].arrival_s, result.requests[0].last_token_s + 7.5);
  EXPECT_DOUBLE_EQ(result.requests[2].arrival_s, result.requests[1].last_token_s);
}

TEST(Simulation, HitsAreTheSharedFullBlocks) {
  Workload workload = workload_of({request_at(0.0, 40, 2), request_at(100.0, 60, 2), request_at(200.0, 60, 2)});
  workload.id_tokens = 16;
  workload.runs = {{1, 3}, {1, 4}, {9, 1}, {2, 3}};
  workload.requests[0].num_runs = 1;
  workload.requests[1].first_run = 1, workload.requests[1].num_runs = 1;
  // The ids are equal from the second one on, so there is no common prefix.
  workload.requests[2].first_run = 2, workload.requests[2].num_runs = 2;
  const auto result = simulate(workload, small_options(true)).value();
  EXPECT_EQ(result.requests[0].cached_tokens, 0U);
  EXPECT_EQ(result.requests[1].cached_tokens, 32U);
  EXPECT_EQ(result.requests[2].cached_tokens, 0U);
}

TEST(Simulation, CountsAndReportsRequestsThatCannotFit) {
  SimulationOptions options = small_options(true);
  options.num_blocks = 4;
  const auto result = simulate(workload_of({request_at(0.0, 200, 5), request_at(0.0, 20, 5)}), options).value();
  EXPECT_EQ(result.num_refused, 1U);
  EXPECT_EQ(result.num_finished, 1U);
  EXPECT_NE(result.first_refusal.find("blocks"), std::string::npos);
}

TEST(Simulation, GoodputCountsRequestsThatMeetBothSlos) {
  SimulationOptions options = small_options(false);
  const Workload workload = workload_of({request_at(0.0, 10, 2), request_at(50.0, 60, 2)});
  options.slo_ttft_s = 2.5;  // TTFT is 2 s for the first request and 7 s for the second
  EXPECT_DOUBLE_EQ(simulate(workload, options).value().good_share, 0.5);
  options.slo_tpot_s = 1.0;  // TPOT is 1.5 s for both
  EXPECT_DOUBLE_EQ(simulate(workload, options).value().good_share, 0.0);
}

TEST(Simulation, ReportsWhyRequestsWaited) {
  SimulationOptions options = small_options(false);
  options.scheduler.max_num_seqs = 1;
  const auto result = simulate(workload_of({request_at(0.0, 10, 3), request_at(0.0, 10, 3)}), options).value();
  EXPECT_DOUBLE_EQ(result.held_by_batch_s, 5.0);  // all steps of the first request
  EXPECT_DOUBLE_EQ(result.held_by_blocks_s, 0.0);
}

TEST(Simulation, RefusesInvalidOptions) {
  const auto field_of = [](const Workload& workload, const SimulationOptions& options) {
    const auto result = simulate(workload, options);
    return result ? std::string("none") : result.error().field;
  };
  const SimulationOptions fine = small_options(true);
  EXPECT_EQ(field_of({}, fine), "workload");
  EXPECT_EQ(field_of(workload_of({request_at(0.0, 0, 1)}), fine), "requests[0]");
  EXPECT_EQ(field_of(workload_of({request_at(-1.0, 1, 1)}), fine), "requests[0]");
  Workload circle = workload_of({request_at(0.0, 1, 1)});
  circle.requests[0].after = 0;
  EXPECT_EQ(field_of(circle, fine), "requests[0]");
  Workload ids = workload_of({request_at(0.0, 1, 1)});
  ids.id_tokens = 24;
  EXPECT_EQ(field_of(ids, fine), "block_size");
  SimulationOptions wrong = fine;
  wrong.num_instances = 0;
  EXPECT_EQ(field_of(workload_of({request_at(0.0, 1, 1)}), wrong), "instances");
  wrong = fine;
  wrong.worker.step_s = -1.0;
  EXPECT_EQ(field_of(workload_of({request_at(0.0, 1, 1)}), wrong), "step_s");
  wrong = fine;
  wrong.scheduler.max_num_seqs = 0;
  EXPECT_EQ(field_of(workload_of({request_at(0.0, 1, 1)}), wrong), "max_num_seqs");
}

TEST(Simulation, RefusesAWorkerWithoutTimePerStep) {
  SimulationOptions options = test::small_options(true);
  options.worker = {.host_s = 0.0,
                    .step_s = 0.0,
                    .prefill_token_s = 0.0,
                    .decode_row_s = 0.0,
                    .context_token_s = 0.5,
                    .prefill_pair_s = 0.5,
                    .source = {}};
  EXPECT_EQ(simulate(test::random_workload(1), options).error().field, "step_s");
  for (double WorkerModel::* term :
       {&WorkerModel::host_s, &WorkerModel::step_s, &WorkerModel::prefill_token_s, &WorkerModel::decode_row_s}) {
    SimulationOptions some = options;
    some.worker.*term = 1e-3;
    EXPECT_TRUE(simulate(test::random_workload(1), some).has_value());
  }
}

// Every second of the 1,000 samples is kept, beginning with the first.
TEST(LoadSamples, AreHalvedAtTheirLimit) {
  LoadSamples samples;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_TRUE(samples.due(i));
    samples.add({.time_s = static_cast<double>(i)});
  }
  EXPECT_FALSE(samples.due(999.09)) << "a sample is now due every 0.1 s";
  EXPECT_TRUE(samples.due(999.1));
  const std::vector<LoadSample> kept = samples.take();
  ASSERT_EQ(kept.size(), 500U);
  for (std::size_t i = 0; i < kept.size(); ++i) ASSERT_EQ(kept[i].time_s, 2.0 * static_cast<double>(i));
}

TEST(Distribution, InterpolatesLikeNumpy) {
  std::vector<double> values(101);
  std::iota(values.rbegin(), values.rend(), 0.0);
  const Distribution found = distribution_of(values);
  EXPECT_DOUBLE_EQ(found.p50, 50.0);
  EXPECT_DOUBLE_EQ(found.p90, 90.0);
  EXPECT_DOUBLE_EQ(found.p99, 99.0);
  EXPECT_DOUBLE_EQ(found.mean, 50.0);
  EXPECT_DOUBLE_EQ(distribution_of({1.0, 2.0}).p90, 1.9);
  EXPECT_EQ(distribution_of({}).count, 0U);
}

}  // namespace
}  // namespace quire
