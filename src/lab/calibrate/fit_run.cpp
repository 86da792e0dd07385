// Fits a worker model to the times that vLLM logs per request. The logs do not contain steps, so the steps are simulated: the search varies
// the worker model until the simulated times of the first requests match the measured times. The times of the other requests are then
// predicted.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>

#include "lab/calibrate/least_squares.h"
#include "lab/calibrate/simplex.h"
#include "lab/simulate/simulated_steps.h"
#include "lab/workload/json_line.h"
#include "lab/workload/line_reader.h"
#include "quire/simulation.h"

namespace quire {
namespace {

// The measured times of one request, in seconds since the first arrival.
struct MeasuredTimes {
  double arrival_s = 0.0, scheduled_s = 0.0, first_token_s = 0.0, last_token_s = 0.0;
  double tokens = 0.0;
  [[nodiscard]] double ttft() const { return first_token_s - arrival_s; }
  [[nodiscard]] double tpot() const { return (last_token_s - first_token_s) / std::max(1.0, tokens - 1.0); }
};

double ttft_of(const RequestTimes& times) {
  return times.first_token_s - times.arrival_s;
}
double tpot_of(const RequestTimes& times) {
  return (times.last_token_s - times.first_token_s) / std::max(1.0, times.output_tokens - 1.0);
}

// Reads the requests in order of arrival, as in the workload. vLLM takes arrival times from the wall clock, and all other times from a
// monotonic clock. The smallest difference between a request's queueing time and its arrival time gives the offset between the clocks.
Result<std::vector<MeasuredTimes>> read_measured(const std::string& path) {
  auto lines = LineReader::open(path);
  if (!lines) return std::unexpected(lines.error());
  std::vector<MeasuredTimes> all;
  double apart_s = INFINITY, first_s = INFINITY;
  for (;;) {
    const auto more = lines->next();
    if (!more) return std::unexpected(more.error());
    if (!*more) break;
    boost::system::error_code error;
    const boost::json::value value = boost::json::parse(lines->line(), error);
    if (error || !value.is_object())
      return std::unexpected(lines->error("is not a JSON object (the file may be truncated)", "fix or remove the line"));
    std::string wrong;
    const JsonLine line(value.get_object(), wrong);
    MeasuredTimes& times = all.emplace_back();
    times.arrival_s = line.number("arrival_time", 0.0);
    times.scheduled_s = line.number("scheduled_ts", 0.0);
    times.first_token_s = line.number("first_token_ts", times.scheduled_s);
    times.last_token_s = line.number("last_token_ts", times.first_token_s);
    times.tokens = static_cast<double>(line.count("output_toks", 1, 1U << 28U));
    apart_s = std::min(apart_s, line.number("queued_ts", 0.0) - times.arrival_s);
    first_s = std::min(first_s, times.arrival_s);
    if (!wrong.empty()) return std::unexpected(lines->error(wrong, "use the requests.jsonl of a vLLM run"));
  }
  for (MeasuredTimes& times : all) {
    times.arrival_s -= first_s;
    times.scheduled_s -= first_s + apart_s;
    times.first_token_s -= first_s + apart_s;
    times.last_token_s -= first_s + apart_s;
  }
  std::ranges::sort(all, {}, &MeasuredTimes::arrival_s);
  return all;
}

struct Run {
  Workload workload;
  std::vector<MeasuredTimes> measured;
  std::size_t num_fitted = 0;
};

Result<Run> read_run(const RunFitOptions& options) {
  if (!(options.fit_share > 0.0 && options.fit_share < 1.0))
    return fail(ErrorCode::invalid_argument, "fit-share", fmt::format("must be greater than 0 and less than 1, got {}", options.fit_share),
                "use a share such as 0.5");
  auto measured = read_measured(options.requests);
  if (!measured) return std::unexpected(measured.error());
  auto workload = read_workload({.path = options.requests, .prompts = options.prompts});
  if (!workload) return std::unexpected(workload.error());
  Run run{std::move(*workload), std::move(*measured)};
  run.num_fitted = static_cast<std::size_t>(options.fit_share * static_cast<double>(run.measured.size()));
  if (run.num_fitted < 10 || run.measured.size() - run.num_fitted < 10)
    return fail(ErrorCode::invalid_argument, options.requests,
                fmt::format("has {} requests, too few to fit and score", run.measured.size()),
                "use a run with at least 10 requests to fit and 10 to score");
  return run;
}

// Returns the logarithms of the five terms, over which the search runs: logarithms keep terms positive, and equal steps multiply a term by
// equal factors. A term of 0 starts at a twentieth of its usual value, because no factor can change 0. `host_s` is not fitted, because
// asynchronous scheduling hides it.
Point logarithms(const WorkerModel& worker) {
  const Terms terms = weights_of(worker), usual = weights_of(WorkerModel{});
  Point at;
  for (std::size_t i = 0; i < kNumTerms; ++i) at.push_back(std::log(std::max(terms[i], usual[i] / 20.0)));
  return at;
}

WorkerModel worker_at(const Point& at, double host_s) {
  Terms weights{};
  for (std::size_t i = 0; i < kNumTerms; ++i) weights[i] = std::exp(std::clamp(at[i], -40.0, 2.0));
  WorkerModel worker = worker_of(weights);
  worker.host_s = host_s;
  return worker;
}

// Returns the mean relative error of TTFT and TPOT over all requests, plus the relative errors of mean TTFT and mean TPOT. A TTFT below a
// tenth of the mean TTFT counts as a tenth, because one step more or less is not important there.
double misfit(const SimulationResult& result, std::span<const MeasuredTimes> measured) {
  double each = 0.0, ttft = 0.0, tpot = 0.0, simulated_ttft = 0.0, simulated_tpot = 0.0;
  for (const MeasuredTimes& times : measured) {
    ttft += times.ttft();
    tpot += times.tpot();
  }
  const double least_ttft = 0.1 * ttft / static_cast<double>(measured.size());
  for (std::size_t i = 0; i < measured.size(); ++i) {
    const RequestTimes& times = result.requests[i];
    if (times.last_token_s < 0.0) return 1e6;
    each += std::abs(ttft_of(times) - measured[i].ttft()) / std::max(measured[i].ttft(), least_ttft);
    each += std::abs(tpot_of(times) - measured[i].tpot()) / measured[i].tpot();
    simulated_ttft += ttft_of(times);
    simulated_tpot += tpot_of(times);
  }
  return each / (2.0 * static_cast<double>(measured.size())) +
         0.5 * (std::abs(simulated_ttft - ttft) / ttft + std::abs(simulated_tpot - tpot) / tpot);
}

// Returns the running sums of the steps' terms, each with the time at which the step's result was ready.
std::vector<std::pair<double, Terms>> summed(std::span<const SimulatedStep> steps) {
  std::vector<std::pair<double, Terms>> sums{{-1.0, Terms{}}};
  for (const SimulatedStep& step : steps) {
    Terms sum = sums.back().second;
    const Terms terms = terms_of(step.sizes);
    for (std::size_t i = 0; i < kNumTerms; ++i) sum[i] += terms[i];
    sums.emplace_back(step.ready_s, sum);
  }
  return sums;
}

// Returns two observations per request: the measured seconds from its scheduling to its first token, and from its first to its last token.
// The sizes of an observation are the sums over the steps that the simulation ran in the same interval.
std::vector<Observation> intervals_of(const SimulationResult& result, std::span<const SimulatedStep> steps,
                                      std::span<const MeasuredTimes> measured) {
  const auto sums = summed(steps);
  const auto at = [&](double time_s) {
    return std::prev(std::ranges::upper_bound(sums, time_s, {}, &std::pair<double, Terms>::first))->second;
  };
  std::vector<Observation> all;
  const auto add = [&](double from_s, double to_s, double seconds) {
    Observation one{.sizes = at(to_s), .value = seconds};
    const Terms before = at(from_s);
    for (std::size_t i = 0; i < kNumTerms; ++i) one.sizes[i] -= before[i];
    all.push_back(one);
  };
  for (std::size_t i = 0; i < measured.size(); ++i) {
    const RequestTimes& times = result.requests[i];
    if (times.last_token_s < 0.0) continue;
    add(times.scheduled_s, times.first_token_s, measured[i].first_token_s - measured[i].scheduled_s);
    add(times.first_token_s, times.last_token_s, measured[i].last_token_s - measured[i].first_token_s);
  }
  return all;
}

// Fits the worker by least squares over the intervals of requests. The steps in these intervals depend on the worker, so the function
// alternates between simulating the steps and fitting the worker.
Result<WorkerModel> fit_intervals(const Run& run, SimulationOptions tried, std::span<const MeasuredTimes> fitted) {
  constexpr int kTurns = 8;
  WorkerModel best = tried.worker;
  double least = INFINITY;
  for (int turn = 0; turn < kTurns; ++turn) {
    std::vector<SimulatedStep> steps;
    const auto result = simulate_steps(run.workload, tried, steps);
    if (!result) return std::unexpected(result.error());
    if (const double cost = misfit(*result, fitted); cost < least) std::tie(least, best) = std::pair(cost, tried.worker);
    const double host_s = tried.worker.host_s;
    tried.worker = worker_of(fit_non_negative(intervals_of(*result, steps, fitted)));
    tried.worker.host_s = host_s;
  }
  return best;
}

void add_lines(std::vector<ScoreLine>& lines, std::string_view what, std::vector<double> measured, std::vector<double> simulated) {
  const Distribution a = distribution_of(std::move(measured)), b = distribution_of(std::move(simulated));
  lines.push_back({fmt::format("{} mean", what), a.mean, b.mean});
  lines.push_back({fmt::format("{} p50", what), a.p50, b.p50});
  lines.push_back({fmt::format("{} p90", what), a.p90, b.p90});
  lines.push_back({fmt::format("{} p99", what), a.p99, b.p99});
}

}  // namespace

Result<FitReport> fit_worker_to_run(const RunFitOptions& options, const SimulationOptions& simulation, const SimulationProgress& progress) {
  const auto run = read_run(options);
  if (!run) return std::unexpected(run.error());
  const std::span<const MeasuredTimes> fitted = std::span(run->measured).first(run->num_fitted);
  SimulationOptions tried = simulation;
  std::optional<Error> error;
  std::uint32_t calls = 0;
  const auto cost = [&](const Point& at) {
    tried.worker = worker_at(at, simulation.worker.host_s);
    const auto result = simulate(run->workload, tried);
    if (!result) error = result.error();
    if (++calls; progress) progress(std::min(1.0, static_cast<double>(calls) / options.max_rounds));
    return result ? misfit(*result, fitted) : 1e6;
  };
  const auto begin = fit_intervals(*run, simulation, fitted);
  if (!begin) return std::unexpected(begin.error());
  // The second search starts with a new simplex at the result of the first search.
  Point best = search_minimum(cost, logarithms(*begin), 0.2, options.max_rounds / 2);
  best = search_minimum(cost, best, 0.1, options.max_rounds / 2);
  if (error) return std::unexpected(*error);
  FitReport report{.worker = worker_at(best, simulation.worker.host_s), .num_used = run->num_fitted, .mean_error = cost(best), .lines = {}};
  report.worker.source = fmt::format("the first {} of {} requests of a vLLM run", run->num_fitted, run->measured.size());
  report.lines.push_back(fmt::format("{} simulations; misfit of the fitted requests {:.2f} %", calls, report.mean_error * 100.0));
  return report;
}

Result<std::vector<ScoreLine>> score_run(const RunFitOptions& options, const SimulationOptions& simulation) {
  const auto run = read_run(options);
  if (!run) return std::unexpected(run.error());
  const auto result = simulate(run->workload, simulation);
  if (!result) return std::unexpected(result.error());
  std::vector<double> measured_ttft, measured_tpot, ttft, tpot;
  double measured_end_s = 0.0, end_s = 0.0;
  for (std::size_t i = run->num_fitted; i < run->measured.size(); ++i) {
    const RequestTimes& times = result->requests[i];
    if (times.last_token_s < 0.0) continue;
    measured_ttft.push_back(run->measured[i].ttft());
    measured_tpot.push_back(run->measured[i].tpot());
    ttft.push_back(ttft_of(times));
    tpot.push_back(tpot_of(times));
    measured_end_s = std::max(measured_end_s, run->measured[i].last_token_s);
    end_s = std::max(end_s, times.last_token_s);
  }
  std::vector<ScoreLine> lines{{"makespan", measured_end_s, end_s}};
  add_lines(lines, "TTFT", std::move(measured_ttft), std::move(ttft));
  add_lines(lines, "TPOT", std::move(measured_tpot), std::move(tpot));
  return lines;
}

}  // namespace quire
