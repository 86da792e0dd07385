// Tests whole simulations whose times follow by hand: the order of arrivals, closed loops, waiting, and what a router sees.
#include <fmt/format.h>

#include "lab/lab_support.h"
#include "lab/simulate/load_samples.h"

namespace quire {
namespace {

using test::request_at;
using test::small_options;
using test::workload_of;

std::string instances_of(const SimulationResult& result) {
  std::string text;
  for (const RequestTimes& times : result.requests) text += std::to_string(times.instance);
  return text;
}

// The router numbers the instances in the order of arrival.
TEST(Arrivals, AreInOrderOfTimeThenOfNumber) {
  SimulationOptions options = small_options(false);
  options.num_instances = 9;
  const auto open = workload_of({request_at(20.0, 10, 2), request_at(0.0, 10, 2), request_at(10.0, 10, 2), request_at(0.0, 10, 2),
                                 request_at(30.0, 10, 2), request_at(20.0, 10, 2)});
  EXPECT_EQ(instances_of(simulate(open, options).value()), "302154");

  // The first request ends at 3.5. Its followers come 5, 3 and 3 s later. An open arrival at the same time precedes them.
  std::vector<WorkloadRequest> turns = {request_at(0.0, 10, 2), request_at(5.0, 10, 2), request_at(3.0, 10, 2),
                                        request_at(3.0, 10, 2), request_at(6.5, 10, 2), request_at(8.0, 10, 2)};
  turns[1].after = turns[2].after = turns[3].after = 0;
  const auto result = simulate(workload_of(turns), options).value();
  EXPECT_EQ(instances_of(result), "052314");
  const double arrivals[] = {0.0, 8.5, 6.5, 6.5, 6.5, 8.0};
  for (std::size_t i = 0; i < std::size(arrivals); ++i) EXPECT_DOUBLE_EQ(result.requests[i].arrival_s, arrivals[i]) << i;
}

TEST(Arrivals, ArePlannedAfterAStepThatEndsAtTheSameTime) {
  const auto result = simulate(workload_of({request_at(0.0, 10, 5), request_at(2.0, 10, 2)}), small_options(false)).value();
  EXPECT_DOUBLE_EQ(result.requests[1].scheduled_s, 2.0);
  EXPECT_DOUBLE_EQ(result.requests[1].first_token_s, 4.5);
}

TEST(Arrivals, EndedAndRefusedRequestsAreNotOpen) {
  SimulationOptions options = small_options(true);
  options.num_instances = 3;
  options.num_blocks = 6;
  options.routing = Routing::least_loaded;
  // The first request does not fit the cache. The others come while nothing runs, or while one request runs for 2 s and more.
  std::vector<WorkloadRequest> requests = {request_at(0.0, 200, 2), request_at(10.0, 10, 2), request_at(20.0, 10, 4),
                                           request_at(20.5, 10, 2), request_at(1.0, 10, 2),  request_at(30.0, 300, 2)};
  requests[4].after = 0;
  const auto result = simulate(workload_of(requests), options).value();
  EXPECT_EQ(instances_of(result), "000100");
  EXPECT_TRUE(result.requests[0].refused);
  EXPECT_FALSE(result.requests[1].refused);
  EXPECT_EQ(result.num_refused, 2U);
  EXPECT_DOUBLE_EQ(result.requests[4].arrival_s, 1.0) << "a refused request is followed, too";
  EXPECT_NE(result.first_refusal.find("200"), std::string::npos) << result.first_refusal;
}

// 64 prompt tokens fill 4 of the cache's blocks, and take 7.4 s. The second token takes 1.5 s.
TEST(Waiting, IsForTheTokenBudgetOrForBlocks) {
  SimulationOptions options = small_options(false);
  const Workload workload = workload_of({request_at(0.0, 64, 2), request_at(0.0, 64, 2)});
  const auto budget = simulate(workload, options).value();
  EXPECT_DOUBLE_EQ(budget.held_by_budget_s, 7.4);
  EXPECT_DOUBLE_EQ(budget.held_by_blocks_s, 0.0);
  EXPECT_DOUBLE_EQ(budget.held_by_batch_s, 0.0);
  options.scheduler.max_num_batched_tokens = 65;
  options.num_blocks = 6;
  const auto blocks = simulate(workload, options).value();
  EXPECT_DOUBLE_EQ(blocks.held_by_blocks_s, 8.9);
  EXPECT_DOUBLE_EQ(blocks.held_by_budget_s, 0.0);
  EXPECT_DOUBLE_EQ(blocks.held_by_batch_s, 0.0);
}

TEST(Load, IsTheShareOfBlocksInUse) {
  SimulationOptions options = small_options(false);
  options.num_blocks = 11;
  const auto result = simulate(workload_of({request_at(0.0, 64, 2)}), options).value();
  EXPECT_DOUBLE_EQ(result.kv_usage_peak, 0.5);
  EXPECT_DOUBLE_EQ(result.kv_usage_mean, (0.4 * 7.4 + 0.5 * 1.5) / 8.9);
  EXPECT_DOUBLE_EQ(result.busy_share, 1.0);
}

TEST(Load, SamplesCoverAllInstances) {
  SimulationOptions options = small_options(false);
  options.num_instances = 2;
  options.num_blocks = 11;
  options.scheduler.max_num_seqs = 1;
  const auto result = simulate(workload_of({request_at(1.0, 32, 2), request_at(1.0, 16, 2), request_at(1.0, 16, 2)}), options).value();
  // The first instance computes a prompt until 5.2 and a token until 6.7, then the other prompt until 9.3 and its token. The second
  // instance computes a prompt until 3.6 and a token until 5.1.
  std::string text;
  for (const LoadSample& sample : result.samples)
    text += fmt::format("{:g}s {} running {} waiting {:.3f}\n", sample.time_s, sample.num_running, sample.num_waiting, sample.kv_usage);
  EXPECT_EQ(text,
            "1s 1 running 1 waiting 0.100\n"
            "3.6s 2 running 1 waiting 0.200\n"
            "5.1s 1 running 1 waiting 0.100\n"
            "5.2s 1 running 1 waiting 0.150\n"
            "6.7s 1 running 0 waiting 0.050\n"
            "9.3s 1 running 0 waiting 0.100\n"
            "10.8s 0 running 0 waiting 0.000\n");
}

// The first 1,000 samples are halved, then these and the next 500.
TEST(LoadSamples, AreHalvedAgain) {
  LoadSamples samples;
  EXPECT_TRUE(samples.due(0.0));
  for (int i = 0; i < 1500; ++i) {
    samples.add({.time_s = static_cast<double>(i)});
    if (i == 998) EXPECT_FALSE(samples.due(998.04)) << "a sample is due every 0.05 s";
    if (i == 998) EXPECT_TRUE(samples.due(998.06));
  }
  EXPECT_FALSE(samples.due(1499.19)) << "a sample is now due every 0.2 s";
  EXPECT_TRUE(samples.due(1499.21));
  const std::vector<LoadSample> kept = samples.take();
  ASSERT_EQ(kept.size(), 500U);
  for (std::size_t i = 0; i < 250; ++i) {
    ASSERT_EQ(kept[i].time_s, 4.0 * static_cast<double>(i));
    ASSERT_EQ(kept[250 + i].time_s, 1000.0 + 2.0 * static_cast<double>(i));
  }
}

TEST(Progress, IsReportedPerHundredthOfTheRequests) {
  const auto reports = [](std::uint32_t num_requests) {
    std::vector<WorkloadRequest> requests;
    for (std::uint32_t i = 0; i < num_requests; ++i) requests.push_back(request_at(100.0 * i, 10, 2));
    std::vector<double> told;
    (void)simulate(workload_of(requests), small_options(true), [&](double done) { told.push_back(done); }).value();
    return told;
  };
  EXPECT_EQ(reports(4), (std::vector{0.25, 0.5, 0.75, 1.0}));
  EXPECT_EQ(reports(99).size(), 99U);
  const std::vector<double> half = reports(100);
  ASSERT_EQ(half.size(), 50U);
  EXPECT_EQ(half.front(), 0.02);
  EXPECT_EQ(half.back(), 1.0);
  const std::vector<double> third = reports(250);
  ASSERT_EQ(third.size(), 83U);
  EXPECT_EQ(third.front(), 0.012);
  EXPECT_EQ(third.back(), 249.0 / 250.0);
}

TEST(Tokens, ArePartsOfTheWorkload) {
  Workload workload = workload_of({request_at(0.0, 40, 2), request_at(100.0, 50, 2), request_at(200.0, 40, 2)});
  for (TokenId token = 0; token < 7; ++token) workload.tokens.push_back(900 + token);  // of no request
  for (TokenId token = 0; token < 40; ++token) workload.tokens.push_back(token);
  for (TokenId token = 0; token < 50; ++token) workload.tokens.push_back(token < 35 ? token : token + 500);
  for (TokenId token = 0; token < 40; ++token) workload.tokens.push_back(token < 35 ? token : token + 500);
  for (WorkloadRequest& request : workload.requests) request.has_tokens = true;
  workload.requests[0].first_token = 7;
  workload.requests[1].first_token = 47;
  workload.requests[2].first_token = 97;
  const auto result = simulate(workload, small_options(true)).value();
  EXPECT_EQ(result.requests[1].cached_tokens, 32U);
  EXPECT_EQ(result.requests[2].cached_tokens, 32U);
  workload.requests[2].first_token = 98;
  workload.tokens.push_back(0);
  EXPECT_EQ(simulate(workload, small_options(true)).value().requests[2].cached_tokens, 0U);
}

// Only prompts of several tokens take time. The third request arrives when the first one ends, at time 0. It joins the fifth plan, which
// gives the second request its last token.
TEST(Steps, WithoutDurationAreAppliedBeforeTheNextPlan) {
  SimulationOptions options = small_options(true);
  options.worker = {.host_s = 0.0,
                    .step_s = 0.0,
                    .prefill_token_s = 0.1,
                    .decode_row_s = 0.0,
                    .context_token_s = 0.0,
                    .prefill_pair_s = 0.0,
                    .source = {}};
  std::vector<WorkloadRequest> requests = {request_at(0.0, 1, 3), request_at(0.0, 1, 5), request_at(0.0, 10, 2)};
  requests[2].after = 0;
  const auto result = simulate(workload_of(requests), options).value();
  std::string text;
  for (const RequestTimes& times : result.requests)
    text += fmt::format("{:g} {:g} {:g} {:g}\n", times.arrival_s, times.scheduled_s, times.first_token_s, times.last_token_s);
  EXPECT_EQ(text, "0 0 0 0\n0 0 0 1\n0 0 1 1\n");
}

// Turns of sessions with think times, under both policies, with a cache that is too small for all of them.
TEST(RecordedRuns, SessionsMatchTheRecord) {
  for (const SchedulingPolicy policy : {SchedulingPolicy::fcfs, SchedulingPolicy::continuum})
    for (const std::uint64_t tier_bytes : {std::uint64_t{0}, std::uint64_t{16'000 * 60}}) {
      Workload workload;
      workload.id_tokens = 16;
      for (std::uint32_t session = 0; session < 25; ++session)
        for (std::uint32_t turn = 0; turn < 5; ++turn) {
          WorkloadRequest request =
              request_at(turn == 0 ? 3.0 * session : 0.5 * ((7 * session + turn) % 11), 40 + 37 * turn + session, 1 + (session + turn) % 6);
          request.session = session;
          request.ends_session = turn == 4;
          if (turn > 0) request.after = static_cast<std::uint32_t>(workload.requests.size() - 1);
          request.first_run = static_cast<std::uint32_t>(workload.runs.size());
          request.num_runs = 1;
          workload.runs.push_back({std::uint64_t{session} << 32U, request.prompt_tokens / 16});
          workload.requests.push_back(request);
        }
      SimulationOptions options = small_options(true);
      options.num_blocks = 60;
      options.num_instances = 2;
      options.routing = Routing::by_prefix;
      options.scheduler.policy = policy;
      options.kv_bytes_per_token = 1000;
      options.tier.bytes = tier_bytes;
      options.tier.load_bytes_per_s = 1e6;
      const auto result = simulate(workload, options).value();
      EXPECT_EQ(result.num_finished, 125U);
      EXPECT_GT(result.cached_tokens, 0U);
      test::expect_recorded(simulation_json(result, options));
    }
}

}  // namespace
}  // namespace quire
