// Tests the fit of a worker to the requests of a vLLM run, and its scores: each line of the run counts.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <tuple>

#include "base/random.h"
#include "lab/calibrate/least_squares.h"
#include "lab/lab_support.h"

namespace quire {
namespace {

using test::TextFile;

struct LoggedTimes {
  double arrival_s = 0.0, queued_s = 0.0, scheduled_s = 0.0, first_s = 0.0, last_s = 0.0;
};

// Arrivals are on another clock than the other times.
std::string log_line(const LoggedTimes& times, int input, int output) {
  return fmt::format(
      "{{\"input_toks\": {}, \"output_toks\": {}, \"arrival_time\": {:.12g}, \"queued_ts\": {:.12g}, \"scheduled_ts\": {:.12g}, "
      "\"first_token_ts\": {:.12g}, \"last_token_ts\": {:.12g}}}\n",
      input, output, 5000.0 + times.arrival_s, 70.0 + times.queued_s, 70.0 + times.scheduled_s, 70.0 + times.first_s, 70.0 + times.last_s);
}

// Twenty requests that run alone. Their TTFT is 3 s and 1 s more per request, their TPOT 0.5 s and 0.5 s more per request.
std::string twenty_requests() {
  std::string text;
  for (int i : {5, 0, 3, 1, 2, 4, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6}) {
    const double arrival = 100.0 * i;
    text += log_line({.arrival_s = arrival,
                      .queued_s = arrival + (i == 3 ? 0.25 : 0.25 + i * 0.01),
                      .scheduled_s = arrival + 1.25,
                      .first_s = arrival + 0.25 + 3.0 + i,
                      .last_s = arrival + 0.25 + 3.0 + i + 2.0 * 0.5 * (i + 1)},
                     10, 3);
  }
  // The fourth request was queued soonest.
  return text;
}

TEST(FitRun, ScoresCompareTheRequestsAfterTheFit) {
  const TextFile log(twenty_requests());
  const auto scores = score_run({.requests = log.path(), .fit_share = 0.5}, test::small_options(false));
  ASSERT_TRUE(scores.has_value()) << scores.error().to_string();
  const std::tuple<const char*, double, double> expected[] = {
      {"makespan", 1942.0, 1905.0}, {"TTFT mean", 17.5, 2.0}, {"TTFT p50", 17.5, 2.0}, {"TTFT p90", 21.1, 2.0}, {"TTFT p99", 21.91, 2.0},
      {"TPOT mean", 7.75, 1.5},     {"TPOT p50", 7.75, 1.5},  {"TPOT p90", 9.55, 1.5}, {"TPOT p99", 9.955, 1.5}};
  ASSERT_EQ(scores->size(), std::size(expected));
  for (std::size_t i = 0; i < std::size(expected); ++i) {
    EXPECT_EQ((*scores)[i].what, std::get<0>(expected[i]));
    EXPECT_NEAR((*scores)[i].measured, std::get<1>(expected[i]), 1e-6) << (*scores)[i].what;
    EXPECT_NEAR((*scores)[i].simulated, std::get<2>(expected[i]), 1e-6) << (*scores)[i].what;
  }
}

TEST(FitRun, NeedsTenRequestsToFitAndTenToScore) {
  const std::string text = twenty_requests();
  const TextFile twenty(text), nineteen(text.substr(text.find('\n') + 1));
  const auto error_of = [](const TextFile& file, double share) {
    const auto scores = score_run({.requests = file.path(), .fit_share = share}, test::small_options(false));
    return scores ? std::string() : scores.error().message;
  };
  EXPECT_EQ(error_of(twenty, 0.5), "");
  EXPECT_EQ(error_of(twenty, 0.549), "");
  EXPECT_EQ(error_of(twenty, 0.4999), "has 20 requests, too few to fit and score");
  EXPECT_EQ(error_of(twenty, 0.55001), "has 20 requests, too few to fit and score");
  EXPECT_EQ(error_of(nineteen, 0.5), "has 19 requests, too few to fit and score");
  EXPECT_EQ(error_of(nineteen, 0.53), "has 19 requests, too few to fit and score");
  for (const double share : {0.0, 1.0, -0.5, 1.5, static_cast<double>(NAN)})
    EXPECT_EQ(error_of(twenty, share), fmt::format("must be greater than 0 and less than 1, got {}", share));
}

TEST(FitRun, ErrorsNameTheLineOfARun) {
  const std::string fine = log_line({.arrival_s = 0.0, .queued_s = 0.0, .scheduled_s = 1.0, .first_s = 1.0, .last_s = 1.0}, 1, 1);
  const auto error_of = [&](const std::string& line) {
    const TextFile file(fine + line);
    const auto scores = score_run({.requests = file.path(), .fit_share = 0.5}, test::small_options(false));
    EXPECT_TRUE(scores.error().field.starts_with(file.path()));
    return scores.error().field.substr(file.path().size()) + " " + scores.error().message;
  };
  EXPECT_EQ(error_of(fine), " has 2 requests, too few to fit and score");
  EXPECT_EQ(error_of("{\"arr"), ":2 is not a JSON object (the file may be truncated)");
  EXPECT_EQ(error_of("[]"), ":2 is not a JSON object (the file may be truncated)");
  const auto with = [&](std::string_view from, std::string_view to) {
    std::string line = fine;
    return line.replace(line.find(from), from.size(), to);
  };
  EXPECT_EQ(error_of(with("\"output_toks\": 1", "\"output_toks\": 0")), ":2 `output_toks` is not a whole number from 1 to 268435456");
  EXPECT_EQ(error_of(with("\"arrival_time\": 5000", "\"arrival_time\": -1")), ":2 `arrival_time` is not a number of at least 0");
  EXPECT_EQ(error_of(with("\"queued_ts\": 70", "\"queued_ts\": -1")), ":2 `queued_ts` is not a number of at least 0");
  EXPECT_EQ(error_of(with("\"scheduled_ts\": 71", "\"scheduled_ts\": -1")), ":2 `scheduled_ts` is not a number of at least 0");
  EXPECT_EQ(error_of(with("\"first_token_ts\": 71", "\"first_token_ts\": 70.5")), ":2 `first_token_ts` is not a number of at least 71");
  EXPECT_EQ(error_of(with("\"last_token_ts\": 71", "\"last_token_ts\": 70.5")), ":2 `last_token_ts` is not a number of at least 71");
}

// Twenty requests run alone with the worker of `options`. The TTFT of each fitted request is that of the simulation times a factor.
std::string log_with_factors(const SimulationOptions& options, const std::vector<double>& factors, bool are_alike = false) {
  std::vector<WorkloadRequest> requests;
  for (int i = 0; i < 20; ++i)
    requests.push_back(test::request_at(10.0 * i, are_alike ? 300 : 300 + 50 * (i % 7), are_alike ? 5 : 3 + i % 4));
  const auto result = simulate(test::workload_of(requests), options).value();
  std::string text;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const RequestTimes& times = result.requests[i];
    const double ttft = (times.first_token_s - times.arrival_s) * (i < factors.size() ? factors[i] : 1.0);
    text += log_line({.arrival_s = times.arrival_s,
                      .queued_s = times.arrival_s,
                      .scheduled_s = times.arrival_s,
                      .first_s = times.arrival_s + ttft,
                      .last_s = times.arrival_s + ttft + times.last_token_s - times.first_token_s},
                     static_cast<int>(times.prompt_tokens), static_cast<int>(times.output_tokens));
  }
  return text;
}

TEST(FitRun, TheWorkerOfTheRunHasNoMisfit) {
  SimulationOptions options = test::small_options(true);
  options.scheduler.max_num_batched_tokens = 1024;
  options.worker = WorkerModel{};
  const TextFile log(log_with_factors(options, {}));
  std::vector<double> told;
  const auto report =
      fit_worker_to_run({.requests = log.path(), .fit_share = 0.5, .max_rounds = 10}, options, [&](double done) { told.push_back(done); });
  ASSERT_TRUE(report.has_value()) << report.error().to_string();
  EXPECT_LT(report->mean_error, 1e-5);
  EXPECT_EQ(report->num_used, 10U);
  EXPECT_EQ(report->worker.source, "the first 10 of 20 requests of a vLLM run");
  EXPECT_EQ(report->worker.host_s, WorkerModel{}.host_s);
  const Terms found = weights_of(report->worker), planted = weights_of(WorkerModel{});
  for (std::size_t i = 0; i < kNumTerms; ++i) EXPECT_NEAR(found[i], planted[i], 1e-6 * planted[i]) << i;
  // Each search looks at its start and at five points around it, and the result is simulated once more.
  ASSERT_EQ(report->lines.size(), 1U);
  EXPECT_EQ(report->lines[0], "13 simulations; misfit of the fitted requests 0.00 %");
  ASSERT_EQ(told.size(), 13U);
  EXPECT_DOUBLE_EQ(told[0], 0.1);
  EXPECT_DOUBLE_EQ(told[8], 0.9);
  EXPECT_DOUBLE_EQ(told[12], 1.0);
}

// Six requests are as simulated. The TTFT of the others are 2, 0.5, 1.49 and 0.01 times as long, so that the mean is the simulated one. The
// last one counts as a tenth of the mean. No other worker fits better.
TEST(FitRun, MisfitIsTheMeanOfTheRelativeErrors) {
  SimulationOptions options = test::small_options(true);
  options.scheduler.max_num_batched_tokens = 1024;
  options.worker = WorkerModel{};
  const TextFile log(log_with_factors(options, {1, 2, 1, 0.5, 1, 1, 1.49, 1, 0.01, 1}, true));
  const auto report = fit_worker_to_run({.requests = log.path(), .fit_share = 0.5, .max_rounds = 0}, options);
  ASSERT_TRUE(report.has_value()) << report.error().to_string();
  EXPECT_NEAR(report->mean_error, (0.5 + 1.0 + 0.49 / 1.49 + 9.9) / 20.0, 1e-4);
  EXPECT_EQ(report->lines.at(0), "13 simulations; misfit of the fitted requests 58.64 %");
}

TEST(FitRun, ReportsOfInexactRunsAreRecorded) {
  SimulationOptions truth = test::small_options(true);
  truth.scheduler.max_num_batched_tokens = 1024;
  truth.worker = {.host_s = 0.001,
                  .step_s = 0.02,
                  .prefill_token_s = 2e-4,
                  .decode_row_s = 1e-3,
                  .context_token_s = 1e-6,
                  .prefill_pair_s = 1e-8,
                  .source = {}};
  Random random(12);
  for (const double noise : {0.02, 0.3}) {
    std::vector<double> factors;
    for (int i = 0; i < 20; ++i) factors.push_back(1.0 + noise * (2.0 * random.unit() - 1.0));
    for (const bool has_free_rows : {false, true}) {
      SimulationOptions options = truth;
      if (has_free_rows) options.worker.decode_row_s = options.worker.prefill_pair_s = options.worker.context_token_s = 0.0;
      const TextFile log(log_with_factors(options, factors));
      options.worker = WorkerModel{};
      const auto report = fit_worker_to_run({.requests = log.path(), .fit_share = 0.5, .max_rounds = 40}, options);
      ASSERT_TRUE(report.has_value()) << report.error().to_string();
      test::expect_recorded(
          fmt::format("{:.5g} {} {:.4g} {:.4g}", report->mean_error, report->lines, report->worker.step_s, report->worker.prefill_token_s));
    }
  }
}

}  // namespace
}  // namespace quire
