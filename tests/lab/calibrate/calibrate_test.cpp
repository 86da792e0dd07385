// Tests that calibration recovers a worker with known parameters.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "base/random.h"
#include "lab/calibrate/least_squares.h"
#include "lab/calibrate/simplex.h"
#include "lab/lab_support.h"

namespace quire {
namespace {

using test::TextFile;

TEST(LeastSquares, FindsPlantedWeights) {
  const Terms planted = {0.01, 3e-5, 0.0, 4e-8, 1e-9};
  Random random(5);
  std::vector<Observation> observations;
  observations.reserve(200);
  for (int i = 0; i < 200; ++i) {
    Observation one{.sizes = {1.0, random.unit() * 2000, random.unit() * 100, random.unit() * 1e5, random.unit() * 1e6}, .value = 0.0};
    for (std::size_t term = 0; term < kNumTerms; ++term) one.value += planted[term] * one.sizes[term];
    observations.push_back(one);
  }
  const Terms found = fit_non_negative(observations);
  for (std::size_t term = 0; term < kNumTerms; ++term) EXPECT_NEAR(found[term], planted[term], 1e-6 * planted[term] + 1e-15);
}

TEST(LeastSquares, NoWeightIsNegative) {
  Random random(6);
  for (int round = 0; round < 50; ++round) {
    std::vector<Observation> observations;
    observations.reserve(20);
    for (int i = 0; i < 20; ++i)
      observations.push_back({{1.0, random.unit(), random.unit(), random.unit(), random.unit()}, 0.1 + random.unit()});
    for (const double weight : fit_non_negative(observations)) EXPECT_GE(weight, 0.0);
  }
  EXPECT_EQ(fit_non_negative({}), Terms{});
}

TEST(LeastSquares, OmittedTermsHaveZeroWeight) {
  const std::vector<Observation> both = {{{1, 0, 2, 5, 0}, 9.0}, {{1, 0, 3, 7, 0}, 13.0}, {{1, 0, 5, 2, 0}, 17.0}, {{1, 0, 1, 9, 0}, 6.0}};
  const Terms weights = fit_non_negative(both, 0b00101);
  EXPECT_GT(weights[0], 0.0);
  EXPECT_GT(weights[2], 0.0);
  EXPECT_EQ(weights[3], 0.0);
}

TEST(Simplex, FindsAMinimum) {
  const auto cost = [](const Point& at) { return std::pow(at[0] - 3.0, 2) + 10.0 * std::pow(at[1] + 1.0 + at[0], 2); };
  const Point found = search_minimum(cost, {0.0, 0.0}, 1.0, 200);
  EXPECT_NEAR(found[0], 3.0, 0.01);
  EXPECT_NEAR(found[1], -4.0, 0.01);
}

// Returns a trace of steps, as quire serve --trace writes it, of a worker with known seconds. The requests have chunks of random lengths,
// or all of the same length.
std::string trace_of(const WorkerModel& worker, bool planned_ahead, bool alike = false, double noise = 0.0) {
  std::string text;
  Random random(9);
  double now_s = 1e9, before_s = 0.0;
  std::uint64_t computed = 0;
  for (int step = 0; step < 300; ++step) {
    const bool admits = step % 10 == 0;
    const std::uint64_t chunk = admits ? (alike ? 300 : 50 + random.below(500)) : 1;
    StepSizes sizes;
    if (admits) computed = 16;
    if (chunk > 1) {
      sizes.prefill_tokens = static_cast<double>(chunk);
      sizes.prefill_pairs = sizes.prefill_tokens * (static_cast<double>(computed) + (sizes.prefill_tokens + 1.0) / 2.0);
    } else {
      sizes.decode_rows = 1.0;
      sizes.context_tokens = static_cast<double>(computed + 1);
    }
    const std::string id = fmt::format("{}", step / 10);
    text +=
        fmt::format("{{\"event\": \"step_snapshot\", \"step\": {}, \"ts\": {:.9f}, \"num_running\": {}}}\n", step, now_s, step > 0 ? 1 : 0);
    if (admits)
      text += fmt::format("{{\"event\": \"prefix_cache_lookup\", \"step\": {}, \"req_id\": \"{}\", \"total_hit_tokens\": 16}}\n", step, id);
    text += fmt::format(
        "{{\"event\": \"step_decision\", \"step\": {}, \"scheduled_new_req_ids\": [{}], \"scheduled_resumed_req_ids\": [], "
        "\"preempted_req_ids\": [], \"num_scheduled_tokens\": {{\"{}\": {}}}}}\n",
        step, admits ? "\"" + id + "\"" : "", id, chunk);
    computed += chunk;
    const double seconds = worker.seconds(sizes) * (1.0 + noise * (2.0 * random.unit() - 1.0));
    now_s += planned_ahead ? before_s : seconds;
    before_s = seconds;
  }
  return text;
}

TEST(FitSteps, RecoversTheWorkerForBothPlanningModes) {
  WorkerModel planted = test::round_worker();
  planted = {.host_s = 0.0,
             .step_s = 0.02,
             .prefill_token_s = 1e-4,
             .decode_row_s = 0.0,
             .context_token_s = 2e-5,
             .prefill_pair_s = 1e-8,
             .source = {}};
  for (const bool planned_ahead : {false, true}) {
    const TextFile file(trace_of(planted, planned_ahead));
    const auto report = fit_worker_to_steps(file.path());
    ASSERT_TRUE(report.has_value()) << report.error().to_string();
    EXPECT_LT(report->mean_error, 0.01) << planned_ahead;
    EXPECT_NEAR(report->worker.prefill_token_s, planted.prefill_token_s, 0.1 * planted.prefill_token_s);
    EXPECT_NEAR(report->worker.context_token_s, planted.context_token_s, 0.1 * planted.context_token_s);
  }
}

TEST(FitSteps, ReportsLengthsThatAreTooSimilar) {
  const WorkerModel worker{.host_s = 0.0,
                           .step_s = 0.02,
                           .prefill_token_s = 1e-4,
                           .decode_row_s = 1e-3,
                           .context_token_s = 2e-5,
                           .prefill_pair_s = 1e-8,
                           .source = {}};
  const auto lines_of = [&worker](bool alike) {
    const TextFile file(trace_of(worker, false, alike, 0.05));
    const auto report = fit_worker_to_steps(file.path());
    EXPECT_TRUE(report.has_value());
    return report ? fmt::format("{}", fmt::join(report->lines, "\n")) : "";
  };
  EXPECT_EQ(lines_of(false).find("context_token_s cannot be determined"), std::string::npos) << lines_of(false);
  EXPECT_NE(lines_of(true).find("context_token_s cannot be determined"), std::string::npos) << lines_of(true);
}

TEST(FitSteps, ReportsAreRecorded) {
  const WorkerModel worker{.host_s = 0.0,
                           .step_s = 0.02,
                           .prefill_token_s = 1e-4,
                           .decode_row_s = 1e-3,
                           .context_token_s = 2e-5,
                           .prefill_pair_s = 1e-8,
                           .source = {}};
  for (const bool planned_ahead : {false, true})
    for (const double noise : {0.0, 0.05, 0.3}) {
      const TextFile file(trace_of(worker, planned_ahead, false, noise));
      const auto report = fit_worker_to_steps(file.path());
      ASSERT_TRUE(report.has_value());
      const WorkerModel& fitted = report->worker;
      test::expect_recorded(fmt::format("{} {:.4g} {} {:.4g} {:.4g} {:.4g} {:.4g}", report->num_used, report->mean_error, report->lines,
                                        fitted.step_s, fitted.prefill_token_s, fitted.context_token_s, fitted.prefill_pair_s));
    }
}

TEST(FitSteps, RefusesTracesWithoutUsableSteps) {
  const TextFile empty(""), other("{\"event\": \"step_snapshot\", \"step\": 0}\n");
  EXPECT_NE(fit_worker_to_steps(empty.path()).error().message.find("0 steps"), std::string::npos);
  EXPECT_NE(fit_worker_to_steps(other.path()).error().message.find("`num_running` is missing"), std::string::npos);
}

// Returns the log that vLLM would write if it were the simulator with the known worker.
std::string run_of(const Workload& workload, const SimulationResult& result) {
  std::string text;
  for (std::size_t i = 0; i < workload.requests.size(); ++i) {
    const RequestTimes& times = result.requests[i];
    text += fmt::format(
        "{{\"request_id\": \"b-{}\", \"input_toks\": {}, \"output_toks\": {}, \"arrival_time\": {:.9f}, \"queued_ts\": {:.9f}, "
        "\"scheduled_ts\": {:.9f}, "
        "\"first_token_ts\": {:.9f}, \"last_token_ts\": {:.9f}}}\n",
        i, times.prompt_tokens, times.output_tokens, 1e9 + times.arrival_s, 5.0 + times.arrival_s, 5.0 + times.scheduled_s,
        5.0 + times.first_token_s, 5.0 + times.last_token_s);
  }
  return text;
}

TEST(FitRun, PredictsTheRestOfARun) {
  SimulationOptions options = test::small_options(true);
  options.num_blocks = 400;
  options.worker = {.host_s = 0.001,
                    .step_s = 0.02,
                    .prefill_token_s = 2e-4,
                    .decode_row_s = 1e-3,
                    .context_token_s = 1e-7,
                    .prefill_pair_s = 0.0,
                    .source = {}};
  Workload workload = test::random_workload(8, 80);
  workload.id_tokens = 0;  // its log does not contain shared prefixes
  const TextFile log(run_of(workload, simulate(workload, options).value()));
  options.worker = WorkerModel{};
  const RunFitOptions run{.requests = log.path(), .prompts = {}, .fit_share = 0.5, .max_rounds = 300};
  const auto report = fit_worker_to_run(run, options);
  ASSERT_TRUE(report.has_value()) << report.error().to_string();
  options.worker = report->worker;
  const auto scores = score_run(run, options);
  for (const ScoreLine& line : scores.value()) EXPECT_NEAR(line.simulated / line.measured, 1.0, 0.05) << line.what;
}

TEST(FitRun, ReportsAndScoresAreRecorded) {
  SimulationOptions options = test::small_options(true);
  options.num_blocks = 400;
  options.worker = {.host_s = 0.001,
                    .step_s = 0.02,
                    .prefill_token_s = 2e-4,
                    .decode_row_s = 1e-3,
                    .context_token_s = 1e-7,
                    .prefill_pair_s = 0.0,
                    .source = {}};
  Workload workload = test::random_workload(8, 60);
  workload.id_tokens = 0;
  const TextFile log(run_of(workload, simulate(workload, options).value()));
  options.worker = WorkerModel{};
  for (const double share : {0.3, 0.5}) {
    const RunFitOptions run{.requests = log.path(), .prompts = {}, .fit_share = share, .max_rounds = 60};
    const auto report = fit_worker_to_run(run, options);
    ASSERT_TRUE(report.has_value()) << report.error().to_string();
    test::expect_recorded(fmt::format("{} {:.4g} {} {:.4g}", report->num_used, report->mean_error, report->lines, report->worker.step_s));
    std::string scores;
    for (const ScoreLine& line : score_run(run, options).value())
      scores += fmt::format("{} {:.6g} {:.6g}\n", line.what, line.measured, line.simulated);
    test::expect_recorded(scores);
  }
}

TEST(FitRun, RefusesRunsThatCannotBeScored) {
  const TextFile log(
      "{\"request_id\": \"b\", \"input_toks\": 1, \"output_toks\": 1, \"arrival_time\": 1, \"queued_ts\": 1, \"scheduled_ts\": 1, "
      "\"first_token_ts\": 2, "
      "\"last_token_ts\": 2}\n");
  EXPECT_NE(fit_worker_to_run({.requests = log.path()}, {}).error().message.find("1 requests"), std::string::npos);
  EXPECT_EQ(fit_worker_to_run({.requests = log.path(), .fit_share = 1.0}, {}).error().field, "fit-share");
}

TEST(WorkerFile, RoundTrips) {
  WorkerModel worker = test::round_worker();
  worker.source = "a \"source\"";
  const TextFile file(worker_model_json(worker));
  const auto read = read_worker_model(file.path());
  ASSERT_TRUE(read.has_value()) << read.error().to_string();
  EXPECT_EQ(worker_model_json(*read), worker_model_json(worker));
}

TEST(WorkerFile, ErrorsNameTheKey) {
  const TextFile negative("{\"host_s\": 0, \"step_s\": -1}"), list("[]");
  EXPECT_EQ(read_worker_model(negative.path()).error().message, "`step_s` is not a valid number of seconds");
  EXPECT_EQ(read_worker_model(list.path()).error().message, "is not a JSON object");
  const auto with_step = [](std::string_view seconds) {
    std::string text = worker_model_json(test::round_worker());
    const std::size_t at = text.find("\"step_s\": 1");
    return text.replace(at, 11, fmt::format("\"step_s\": {}", seconds));
  };
  const TextFile most(with_step("999999")), more(with_step("1000000"));
  EXPECT_EQ(read_worker_model(most.path())->step_s, 999999.0);
  EXPECT_EQ(read_worker_model(more.path()).error().message, "`step_s` is not a valid number of seconds");
  EXPECT_EQ(read_worker_model("/nowhere").error().code, ErrorCode::not_found);
}

}  // namespace
}  // namespace quire
