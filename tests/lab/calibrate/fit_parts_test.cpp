// Tests the parts of a calibration: the searches give the results of other implementations, and each line of a trace or run counts.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <map>

#include "base/random.h"
#include "lab/calibrate/least_squares.h"
#include "lab/calibrate/simplex.h"
#include "lab/lab_support.h"

namespace quire {
namespace {

using test::TextFile;

// ---- searches

Observation observation_of(int kind, int i) {
  Observation one{.sizes = {1.0, (7 * i) % 5 * 3.0, (3 * i) % 4 * 1.0, (5 * i) % 7 * 2.0, (11 * i) % 6 * (i % 3) * 1.0}, .value = 0.0};
  const Terms& s = one.sizes;
  if (kind == 0) one.value = 1.0 + (13 * i) % 9;
  if (kind == 1) one.value = 2.0 + 0.5 * s[1] + s[2] + 0.25 * s[3] + 0.125 * s[4] + i % 2 * 0.5;
  if (kind == 2) one.value = 40.0 - s[1] - s[2];
  return one;
}

std::vector<Observation> twelve_observations(int kind, const Terms& scales = {1, 1, 1, 1, 1}) {
  std::vector<Observation> all;
  for (int i = 0; i < 12; ++i) {
    all.push_back(observation_of(kind, i));
    for (std::size_t term = 0; term < kNumTerms; ++term) all.back().sizes[term] *= scales[term];
  }
  return all;
}

// The expected weights are numpy's, as the best of lstsq over all sets of terms without negative weights.
TEST(LeastSquares, WeightsEqualThoseOfNumpy) {
  struct Case {
    int kind;
    unsigned terms;
    Terms weights;
  };
  for (const Case& one : {Case{0, 0b11111, {0.819223714, 0, 0, 0.133308952, 0.429759913}},
                          {0, 0b10111, {1.16108867, 0, 0.04867619, 0, 0.441216072}},
                          {0, 0b11110, {0, 0, 0, 0.244407694, 0.517043617}},
                          {1, 0b11111, {2.01177818, 0.521149497, 1.08182068, 0.262851242, 0.0965924974}},
                          {1, 0b10111, {2.10370536, 0.594485805, 1.30415134, 0, 0.309279354}},
                          {1, 0b11110, {0, 0.587623081, 1.670131, 0.335775034, 0.185016765}},
                          {2, 0b11111, {31.7894686, 0, 0, 0, 0}},
                          {2, 0b11110, {0, 0.692893238, 5.85918836, 1.73828512, 0.683272154}}}) {
    const Terms weights = fit_non_negative(twelve_observations(one.kind), one.terms);
    for (std::size_t i = 0; i < kNumTerms; ++i) EXPECT_NEAR(weights[i], one.weights[i], 1e-8 * one.weights[i]) << one.kind << " " << i;
  }
}

TEST(LeastSquares, UnitsDoNotMatter) {
  const Terms plain = fit_non_negative(twelve_observations(1));
  for (const Terms& scales : {Terms{1, 1e-12, 1e12, 1e-8, 1e8}, {1e9, 1e-9, 1, 1e15, 1e-15}, {1e-12, 1e-12, 1e-12, 1e-12, 1e-12}}) {
    const Terms weights = fit_non_negative(twelve_observations(1, scales));
    for (std::size_t i = 0; i < kNumTerms; ++i) EXPECT_NEAR(weights[i] * scales[i], plain[i], 1e-6 * plain[i]) << i;
  }
  // Errors are relative, so the unit of the values does not matter either.
  for (const double unit : {1e-9, 1e9}) {
    std::vector<Observation> observations = twelve_observations(1);
    for (Observation& one : observations) one.value *= unit;
    const Terms weights = fit_non_negative(observations);
    for (std::size_t i = 0; i < kNumTerms; ++i) EXPECT_NEAR(weights[i] / unit, plain[i], 1e-6 * plain[i]) << i;
  }
}

TEST(LeastSquares, IgnoresObservationsWithoutDuration) {
  std::vector<Observation> observations = twelve_observations(1);
  const Terms plain = fit_non_negative(observations);
  observations.insert(observations.begin(), {{1, 9, 9, 9, 9}, 0.0});
  observations.push_back({{1, 7, 7, 7, 7}, -3.0});
  EXPECT_EQ(fit_non_negative(observations), plain);
}

// Terms that are multiples of each other share a weight.
TEST(LeastSquares, DependentTermsDoNotPreventAFit) {
  std::vector<Observation> observations;
  for (int i = 1; i <= 6; ++i) observations.push_back({{1.0, 2.0 * i, 4.0 * i, 0.0, 0.0}, 3.0 + 8.0 * i});
  const Terms weights = fit_non_negative(observations);
  EXPECT_NEAR(weights[0], 3.0, 1e-9);
  EXPECT_NEAR(2.0 * weights[1] + 4.0 * weights[2], 8.0, 1e-9);
  EXPECT_EQ(weights[3], 0.0);
  EXPECT_EQ(weights[4], 0.0);
}

TEST(LeastSquares, TermsAndWorkerCorrespond) {
  const WorkerModel worker = worker_of({1, 2, 3, 4, 5});
  EXPECT_EQ(worker.host_s, 0.0);
  EXPECT_EQ(worker.source, "");
  EXPECT_EQ(weights_of(worker), (Terms{1, 2, 3, 4, 5}));
  const StepSizes sizes{.prefill_tokens = 10, .decode_rows = 20, .context_tokens = 30, .prefill_pairs = 40};
  const Terms terms = terms_of(sizes), weights = weights_of(worker);
  EXPECT_EQ(terms, (Terms{1, 10, 20, 30, 40}));
  double sum = 0.0;
  for (std::size_t i = 0; i < kNumTerms; ++i) sum += weights[i] * terms[i];
  EXPECT_EQ(sum, worker.seconds(sizes));
}

// A Python implementation of the paper visits the same points. The functions make it take every kind of step.
TEST(Simplex, VisitsThePointsOfThePaper) {
  struct Visits {
    std::size_t count = 0;
    double digest = 0.0;
    Point best;
  };
  const auto visit = [](const std::function<double(const Point&)>& function, const Point& start, double reach, std::uint32_t num_calls) {
    Visits visits;
    visits.best = search_minimum(
        [&](const Point& at) {
          ++visits.count;
          for (std::size_t i = 0; i < at.size(); ++i)
            visits.digest += static_cast<double>(visits.count) * static_cast<double>(i + 1) * at[i];
          return function(at);
        },
        start, reach, num_calls);
    return visits;
  };
  const auto expect = [](const Visits& visits, std::size_t count, double digest, const Point& best) {
    EXPECT_EQ(visits.count, count);
    EXPECT_NEAR(visits.digest, digest, 1e-8);
    ASSERT_EQ(visits.best.size(), best.size());
    for (std::size_t i = 0; i < best.size(); ++i) EXPECT_NEAR(visits.best[i], best[i], 1e-9);
  };
  const auto peak = [](const Point& p) { return std::abs(p[0] - 3.0) + 2.0 * std::abs(p[1] + 1.0); };
  expect(visit(peak, {0.0, 0.0}, 1.0, 40), 40, 691.9773098230362, {3.0, -1.0});
  expect(visit(peak, {0.0, 0.0}, 1.0, 0), 3, 8.0, {1.0, 0.0});
  expect(visit(peak, {0.0, 0.0}, 1.0, 3), 3, 8.0, {1.0, 0.0});
  expect(visit(peak, {0.0, 0.0}, 1.0, 4), 5, -8.5, {1.0, -1.0});
  expect(visit(peak, {0.0, 0.0}, 1.0, 5), 5, -8.5, {1.0, -1.0});
  const auto valley = [](const Point& p) { return std::pow(p[0] * p[0] - p[1], 2) + std::pow(1.0 - p[0], 2) / 4.0; };
  expect(visit(valley, {-1.5, 2.0}, 0.5, 60), 60, 3670.169694682583, {0.9907522201538086, 0.978339672088623});
  const auto line = [](const Point& p) { return std::abs(p[0] - 0.3); };
  expect(visit(line, {0.0}, 1.0, 20), 20, 62.0625, {0.30078125});
  // Steps between the minima make the simplex shrink.
  const auto steps = [](double a, double b, double fine) {
    const auto sum = static_cast<int>(std::floor(fine * a) + std::floor(fine * b));
    return ((sum % 3) + 3) % 3;
  };
  const auto two = [&](const Point& p) { return std::abs(p[0]) + std::abs(p[1]) + steps(p[0], p[1], 4.0); };
  expect(visit(two, {-2.0, -0.5}, 0.5, 40), 41, -1053.196620941162, {-1.037322998046875, -0.003021240234375});
  const auto three = [&](const Point& p) {
    return std::abs(p[0]) + 2.0 * std::abs(p[1]) + 3.0 * std::abs(p[2] - p[0]) + steps(p[0], p[2], 8.0);
  };
  expect(visit(three, {-2.0, -0.75, -0.75}, 0.5, 40), 41, -4532.765567306143,
         {-1.2480777815080253, -0.050742533255320216, -1.2886679201854887});
}

// ---- traces of steps

WorkerModel planted_worker() {
  return {.host_s = 0.0,
          .step_s = 0.02,
          .prefill_token_s = 1e-4,
          .decode_row_s = 1e-3,
          .context_token_s = 2e-5,
          .prefill_pair_s = 1e-6,
          .source = {}};
}

// A trace of several requests per step, with prefix hits, preempted and resumed requests, pauses, and lines without a meaning.
class TraceWriter {
 public:
  explicit TraceWriter(bool planned_ahead) : planned_ahead_(planned_ahead) {}

  std::string write(int num_steps) {
    for (int step = 0; step < num_steps; ++step) write_step(step);
    if (was_known_) --num_known_;  // no plan follows the last one
    return text_;
  }
  // Returns how many steps have a known duration, if it is the time to the next plan.
  [[nodiscard]] std::size_t num_known() const { return num_known_; }

 private:
  struct Running {
    std::uint64_t computed = 0, num_rows = 0;
  };

  void write_step(int step) {
    const bool was_idle = step % 50 == 0;
    if (was_idle) now_s_ += 100.0, running_.clear();
    text_ += fmt::format("{{\"event\": \"step_snapshot\", \"ts\": {:.12f}, \"num_running\": {}}}\n", now_s_, was_idle ? 0 : 3);
    if (step % 7 == 0) text_ += "{\"event\": \"another\", \"num_running\": -1}\n[1, 2]\n{\"event\": \"step_sna\n";
    sizes_ = {};
    fresh_.clear(), resumed_.clear(), evicted_.clear(), tokens_.clear();
    const bool is_empty = step % 40 == 13;
    if (!is_empty) plan(step);
    text_ += fmt::format(
        "{{\"event\": \"step_decision\", \"scheduled_new_req_ids\": [{}], \"scheduled_resumed_req_ids\": [{}], \"preempted_req_ids\": "
        "[{}], "
        "\"num_scheduled_tokens\": {{{}}}}}\n",
        fresh_, resumed_, evicted_, tokens_);
    // A few steps take much longer than the worker needs. They are less than a hundredth.
    double seconds = is_empty ? 0.5 : planted_worker().seconds(sizes_) * (step == 33 || step == 177 ? 20.0 : 1.0);
    if (step % 60 == 21 && !planned_ahead_) seconds = 0.0;  // two plans at the same time
    now_s_ += planned_ahead_ ? before_s_ : seconds;
    before_s_ = seconds;
    // The next step is idle if it begins a pause.
    was_known_ = !was_idle && (step + 1) % 50 != 0 && !is_empty && seconds > 0.0;
    if (was_known_) ++num_known_;
  }

  void plan(int step) {
    // Preempts one request, and resumes another.
    if (step % 9 == 5 && running_.size() > 1) {
      const std::string id = running_.begin()->first;
      running_.erase(running_.begin());
      append(evicted_, id);
      waiting_.push_back(id);
    }
    for (auto at = running_.begin(); at != running_.end();) {
      schedule(at->first, at->second, 1);
      at = ++at->second.num_rows > 12 ? running_.erase(at) : std::next(at);
    }
    if (step % 9 == 8 && !waiting_.empty()) {
      const std::string id = waiting_.back();
      waiting_.pop_back();
      append(resumed_, id);
      start(id, 32 * random_.below(3), 2 + random_.below(40));
    }
    if (running_.empty() || random_.chance(0.3)) {
      const std::string id = fmt::format("r{}", num_requests_++);
      append(fresh_, id);
      start(id, 16 * random_.below(5), random_.chance(0.1) ? 1 : 2 + random_.below(90));
    }
  }

  void start(const std::string& id, std::uint64_t num_hits, std::uint64_t chunk) {
    if (num_hits > 0 || hits_.contains(id))
      text_ += fmt::format("{{\"event\": \"prefix_cache_lookup\", \"req_id\": \"{}\", \"total_hit_tokens\": {}}}\n", id, num_hits);
    hits_[id] = num_hits;
    running_[id] = {.computed = num_hits};
    schedule(id, running_[id], chunk);
  }

  void schedule(const std::string& id, Running& request, std::uint64_t count) {
    tokens_ += fmt::format("{}\"{}\": {}", tokens_.empty() ? "" : ", ", id, count);
    if (count == 1) {
      sizes_.decode_rows += 1.0;
      sizes_.context_tokens += static_cast<double>(request.computed + 1);
    }
    for (std::uint64_t i = 0; i < count && count > 1; ++i) {
      sizes_.prefill_tokens += 1.0;
      sizes_.prefill_pairs += static_cast<double>(request.computed + i + 1);
    }
    request.computed += count;
  }

  static void append(std::string& list, const std::string& id) { list += fmt::format("{}\"{}\"", list.empty() ? "" : ", ", id); }

  const bool planned_ahead_;
  Random random_{17};
  std::string text_, fresh_, resumed_, evicted_, tokens_;
  double now_s_ = 100.0, before_s_ = 0.0;
  StepSizes sizes_;
  std::map<std::string, Running> running_;
  std::map<std::string, std::uint64_t> hits_;
  std::vector<std::string> waiting_;
  std::uint64_t num_requests_ = 0;
  std::size_t num_known_ = 0;
  bool was_known_ = false;  // the last step
};

TEST(FitSteps, EveryLineOfATraceCounts) {
  for (const bool planned_ahead : {false, true}) {
    SCOPED_TRACE(planned_ahead);
    TraceWriter writer(planned_ahead);
    const TextFile file(writer.write(260));
    const auto report = fit_worker_to_steps(file.path());
    ASSERT_TRUE(report.has_value()) << report.error().to_string();
    EXPECT_LT(report->mean_error, 1e-6);
    const Terms found = weights_of(report->worker), planted = weights_of(planted_worker());
    for (std::size_t i = 0; i < kNumTerms; ++i) EXPECT_NEAR(found[i], planted[i], 1e-4 * planted[i]) << i;
    EXPECT_EQ(report->worker.host_s, 0.0);
    ASSERT_EQ(report->lines.size(), 2U);
    const std::string used = fmt::format(": {} steps, mean error 0.00 %", report->num_used);
    EXPECT_EQ(report->lines[0].find("plan to next plan: "), 0U);
    EXPECT_EQ(report->lines[1].find("one plan later: "), 0U);
    EXPECT_TRUE(report->lines[planned_ahead ? 1 : 0].ends_with(used)) << report->lines[planned_ahead ? 1 : 0];
    EXPECT_FALSE(report->lines[planned_ahead ? 0 : 1].ends_with("mean error 0.00 %"));
    EXPECT_EQ(report->worker.source, fmt::format("{} steps of a trace, mean error 0.0 %", report->num_used));
    // The longest hundredth is not used.
    if (!planned_ahead) EXPECT_EQ(report->num_used, (99 * writer.num_known() + 99) / 100);
  }
}

// Returns a trace of steps that take 0.5 s each.
std::string equal_steps(int num_steps) {
  std::string text;
  for (int step = 0; step < num_steps; ++step)
    text += fmt::format(
        "{{\"event\": \"step_snapshot\", \"ts\": {}, \"num_running\": 1}}\n"
        "{{\"event\": \"step_decision\", \"scheduled_new_req_ids\": [\"{}\"], \"scheduled_resumed_req_ids\": [], \"preempted_req_ids\": "
        "[], "
        "\"num_scheduled_tokens\": {{\"{}\": 4}}}}\n",
        0.5 * step, step, step);
  return text;
}

TEST(FitSteps, NeedsTwentySteps) {
  const TextFile enough(equal_steps(22)), few(equal_steps(21)), fewer(equal_steps(20));
  const auto report = fit_worker_to_steps(enough.path());
  ASSERT_TRUE(report.has_value()) << report.error().to_string();
  EXPECT_LT(report->mean_error, 1e-9);
  EXPECT_EQ(fit_worker_to_steps(few.path()).error().to_string(),
            few.path() + ": has only 19 steps with a known duration; use a trace or journal with at least 20 steps while requests run");
  EXPECT_EQ(fit_worker_to_steps(fewer.path()).error().message, "has only 19 steps with a known duration");
}

TEST(FitSteps, ErrorsNameTheLineOfATrace) {
  const auto error_after = [](std::string_view line) {
    const TextFile file(equal_steps(2) + "\n" + std::string(line) + "\n");
    const Error error = fit_worker_to_steps(file.path()).error();
    EXPECT_TRUE(error.field == file.path() + ":6" || error.field == file.path()) << error.field;
    return error.message;
  };
  EXPECT_EQ(error_after(R"({"event": "step_snapshot", "ts": -1, "num_running": 1})"), "`ts` is not a number of at least 0");
  EXPECT_EQ(error_after(R"({"event": "step_snapshot", "ts": 9, "num_running": -1})"),
            "`num_running` is not a whole number from 0 to 1073741824");
  EXPECT_EQ(error_after(R"({"event": "prefix_cache_lookup", "req_id": "a", "total_hit_tokens": 1073741825})"),
            "`total_hit_tokens` is not a whole number from 0 to 1073741824");
  EXPECT_EQ(error_after(R"({"event": "prefix_cache_lookup", "req_id": "a", "total_hit_tokens": 1073741824})"),
            "has only 1 steps with a known duration");
  EXPECT_EQ(error_after(R"({"event": "step_decision"})"), "`scheduled_new_req_ids` is not a list");
  EXPECT_EQ(error_after(R"({"event": "step_decision", "scheduled_new_req_ids": [], "scheduled_resumed_req_ids": []})"),
            "`preempted_req_ids` is not a list");
  for (const char* tokens : {"", R"(, "num_scheduled_tokens": [])"})
    EXPECT_EQ(
        error_after(fmt::format(
            R"({{"event": "step_decision", "scheduled_new_req_ids": [], "scheduled_resumed_req_ids": [], "preempted_req_ids": []{}}})",
            tokens)),
        "`num_scheduled_tokens` is not an object");
  // A decision before the first step says nothing.
  const TextFile early("{\"event\": \"step_decision\"}\n" + equal_steps(22));
  EXPECT_TRUE(fit_worker_to_steps(early.path()).has_value());
  EXPECT_EQ(fit_worker_to_steps("/nowhere").error().code, ErrorCode::not_found);
}

// ---- logs of vLLM runs

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
