// Tests the fit of a worker to the steps of a trace: each line of the trace counts.
#include <fmt/format.h>

#include <map>

#include "base/random.h"
#include "lab/calibrate/least_squares.h"
#include "lab/lab_support.h"

namespace quire {
namespace {

using test::TextFile;

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
    // The fit does not use the longest hundredth of the steps.
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
  // The fit ignores a decision before the first step.
  const TextFile early("{\"event\": \"step_decision\"}\n" + equal_steps(22));
  EXPECT_TRUE(fit_worker_to_steps(early.path()).has_value());
  EXPECT_EQ(fit_worker_to_steps("/nowhere").error().code, ErrorCode::not_found);
}

}  // namespace
}  // namespace quire
