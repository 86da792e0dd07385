// Fits a worker model to the trace of a real worker (docs/trace.md). The recorded decisions give the sizes of each step. The duration of a
// step is the time from its plan to the next plan or, if plans are made while the previous step runs, from the next plan to the plan after
// that. The fit tries both and keeps the better result.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cmath>
#include <string>
#include <unordered_map>

#include "lab/calibrate/least_squares.h"
#include "lab/replay/journal_runs.h"
#include "lab/workload/json_line.h"
#include "lab/workload/line_reader.h"
#include "quire/simulation.h"

namespace quire {
namespace {

constexpr std::size_t kMostSteps = 5'000'000, kFewestSteps = 20;
// Fraction of the durations that are fitted. The longest 1 % come from pauses in the traffic or from other work on the machine.
constexpr double kUsedShare = 0.99;

struct TracedStep {
  double time_s = 0.0;
  bool was_idle = false;  // no request ran before this step, so the time before it is meaningless
  StepSizes sizes;
};

class StepFollower {
 public:
  // Takes one line of the trace. Returns what is wrong with the line; empty: the line was used or is irrelevant.
  std::string take(const boost::json::object& record) {
    std::string wrong;
    const JsonLine line(record, wrong);
    const std::string_view event = line.text("event");
    if (event == "step_snapshot") begin(line);
    if (event == "prefix_cache_lookup") found_[std::string(line.text("req_id"))] = line.count("total_hit_tokens", 0, 1U << 30U);
    if (event == "step_decision" && !steps_.empty()) decide(line, record);
    return wrong;
  }
  std::vector<TracedStep> finish() { return std::move(steps_); }

 private:
  void begin(const JsonLine& line) {
    const std::uint64_t num_running = line.count("num_running", 0, 1U << 30U);
    steps_.push_back({.time_s = line.number("ts", 0.0), .was_idle = num_running == 0, .sizes = {}});
  }

  void decide(const JsonLine& line, const boost::json::object& record) {
    for (const char* name : {"scheduled_new_req_ids", "scheduled_resumed_req_ids"})
      for_each_text(line, name, [&](const std::string& request) { computed_[request] = found_[request]; });
    for_each_text(line, "preempted_req_ids", [&](const std::string& request) { computed_[request] = 0; });
    const boost::json::value* const tokens = record.if_contains("num_scheduled_tokens");
    if (tokens == nullptr || !tokens->is_object()) return line.set_error("num_scheduled_tokens", "is not an object");
    for (const auto& [request, value] : tokens->get_object()) {
      const auto count = static_cast<double>(whole_number(value).value_or(0));
      double& computed = computed_[std::string(request)];
      StepSizes& sizes = steps_.back().sizes;
      if (count == 1.0) {
        ++sizes.decode_rows;
        sizes.context_tokens += computed + 1.0;
      } else {
        sizes.prefill_tokens += count;
        sizes.prefill_pairs += count * (computed + (count + 1.0) / 2.0);
      }
      computed += count;
    }
  }

  template <class Take>
  static void for_each_text(const JsonLine& line, const char* name, const Take& take) {
    const boost::json::array* const list = line.array(name);
    for (std::size_t i = 0; list != nullptr && i < list->size(); ++i)
      if ((*list)[i].is_string()) take(std::string((*list)[i].get_string()));
  }

  std::vector<TracedStep> steps_;
  std::unordered_map<std::string, double> computed_;
  std::unordered_map<std::string, std::uint64_t> found_;
};

void keep_most(std::vector<Observation>& all) {
  std::ranges::sort(all, {}, &Observation::value);
  all.resize(static_cast<std::size_t>(std::ceil(static_cast<double>(all.size()) * kUsedShare)));
}

std::unexpected<Error> too_few(const std::string& path, std::size_t count) {
  return fail(ErrorCode::invalid_argument, path, fmt::format("has only {} steps with a known duration", count),
              fmt::format("use a trace or journal with at least {} steps while requests run", kFewestSteps));
}

// Returns the steps with their durations. A duration is the time from the plan `lag` steps later to the plan after that.
std::vector<Observation> observations_of(const std::vector<TracedStep>& steps, std::size_t lag) {
  std::vector<Observation> all;
  for (std::size_t i = 0; i + lag + 1 < steps.size(); ++i) {
    const TracedStep& before = steps[i + lag];
    const TracedStep& after = steps[i + lag + 1];
    if (after.was_idle || before.was_idle || after.time_s <= before.time_s ||
        steps[i].sizes.prefill_tokens + steps[i].sizes.decode_rows == 0.0)
      continue;
    all.push_back({.sizes = terms_of(steps[i].sizes), .value = after.time_s - before.time_s});
  }
  keep_most(all);
  return all;
}

double relative_error(const Observation& one, const Terms& weights) {
  double modelled = 0.0;
  for (std::size_t i = 0; i < kNumTerms; ++i) modelled += weights[i] * one.sizes[i];
  return (modelled - one.value) / one.value;
}

double mean_error(const std::vector<Observation>& observations, const Terms& weights) {
  double sum = 0.0;
  for (const Observation& one : observations) sum += std::abs(relative_error(one, weights));
  return observations.empty() ? 0.0 : sum / static_cast<double>(observations.size());
}

// Threshold of an F-test with a false-alarm rate of 0.1 %. The test checks whether a model without the term of decode rows, or without the
// term of context tokens, explains the steps equally well. This happens if all requests have similar lengths, because the context then
// grows in proportion to the rows. Predictions for other lengths are then unreliable.
constexpr double kFTestThreshold = 11.0;

void warn_of_lengths(const std::vector<Observation>& observations, const Terms& weights, std::vector<std::string>& lines) {
  constexpr unsigned kRows = 1U << 2U, kContexts = 1U << 3U, kAll = (1U << kNumTerms) - 1;
  const auto squares = [&observations](const Terms& of) {
    double sum = 0.0;
    for (const Observation& one : observations) sum += relative_error(one, of) * relative_error(one, of);
    return sum;
  };
  const double all = squares(weights);
  const double needed = all * (1.0 + kFTestThreshold / static_cast<double>(observations.size()));
  for (const unsigned term : {kRows, kContexts}) {
    if (squares(fit_non_negative(observations, kAll & ~term)) > needed) continue;
    lines.push_back(
        fmt::format("{} cannot be determined from this run: it has too few requests, or their lengths are too similar. Predictions for "
                    "requests of other lengths are unreliable. Calibrate with short and long requests",
                    term == kRows ? "decode_row_s" : "context_token_s"));
  }
}

Result<std::vector<TracedStep>> read_steps(const std::string& path) {
  auto lines = LineReader::open(path);
  if (!lines) return std::unexpected(lines.error());
  StepFollower follower;
  for (std::size_t count = 0; count < 8 * kMostSteps; ++count) {
    const auto more = lines->next();
    if (!more) return std::unexpected(more.error());
    if (!*more) break;
    boost::system::error_code error;
    const boost::json::value value = boost::json::parse(lines->line(), error);
    // Skips a line that is not complete, which a trace may have at its end if its process was killed.
    if (error || !value.is_object()) continue;
    if (const std::string wrong = follower.take(value.get_object()); !wrong.empty())
      return std::unexpected(lines->error(wrong, "use the PATH.steps.jsonl of quire serve --trace"));
  }
  return follower.finish();
}

// Fits a worker model to a journal. A journal records the end of each step, so the durations are known exactly.
Result<FitReport> fit_worker_to_journal(const std::string& path) {
  const auto steps = steps_of_journal(path);
  if (!steps) return std::unexpected(steps.error());
  std::vector<Observation> observations;
  for (const TimedStep& step : *steps) observations.push_back({.sizes = terms_of(step.sizes), .value = step.seconds});
  keep_most(observations);
  if (observations.size() < kFewestSteps) return too_few(path, observations.size());
  FitReport report;
  const Terms weights = fit_non_negative(observations);
  report.worker = worker_of(weights);
  report.num_used = observations.size();
  report.mean_error = mean_error(observations, weights);
  report.lines.push_back(fmt::format("from plan to result: {} steps, mean error {:.2f} %", report.num_used, report.mean_error * 100.0));
  warn_of_lengths(observations, weights, report.lines);
  report.worker.source = fmt::format("{} steps of a journal, mean error {:.1f} %", report.num_used, report.mean_error * 100.0);
  return report;
}

}  // namespace

Result<FitReport> fit_worker_to_steps(const std::string& path) {
  if (is_journal(path)) return fit_worker_to_journal(path);
  const auto steps = read_steps(path);
  if (!steps) return std::unexpected(steps.error());
  FitReport report;
  report.mean_error = 2.0;
  std::vector<std::string> warnings;
  for (const std::size_t lag : {0, 1}) {
    const std::vector<Observation> observations = observations_of(*steps, lag);
    if (observations.size() < kFewestSteps) return too_few(path, observations.size());
    const Terms weights = fit_non_negative(observations);
    const double error = mean_error(observations, weights);
    report.lines.push_back(fmt::format("{}: {} steps, mean error {:.2f} %", lag == 0 ? "plan to next plan" : "one plan later",
                                       observations.size(), error * 100.0));
    if (error >= report.mean_error) continue;
    report.mean_error = error;
    report.num_used = observations.size();
    report.worker = worker_of(weights);
    warnings.clear();
    warn_of_lengths(observations, weights, warnings);
  }
  report.lines.insert(report.lines.end(), warnings.begin(), warnings.end());
  report.worker.source = fmt::format("{} steps of a trace, mean error {:.1f} %", report.num_used, report.mean_error * 100.0);
  return report;
}

}  // namespace quire
