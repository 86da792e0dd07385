// Measures how long the jobs of agents take under each scheduling policy. Recorded sessions are played on the core in virtual time, with a
// cache that is too small for all sessions. A step takes 8 ms plus 50 us per prompt token (about 20,000 prompt tokens per second).
// bench/agents.py writes the input from a trace:
//
//   agents_bench BLOCKS <SESSIONS        blocks of 16 tokens; SESSIONS has lines of
//       job START_S                      a job begins; its turns follow
//       turn PROMPT OUT TOOL AFTER_S     tokens of the whole prompt, of the answer; the next tool, and the seconds until the next turn
//
// The prompt of a turn begins with the prompt and the answer of the previous turn. The first 150 tokens of all jobs are equal.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <queue>
#include <sstream>
#include <string>
#include <vector>

#include "quire/core.h"
#include "runtime/worker/step_time_model.h"

namespace {

using namespace quire;

constexpr std::uint32_t kShared = 150, kMaxLen = 1U << 18;
constexpr StepTimeModel kStepTime{.step_s = 0.008, .prompt_token_s = 50e-6};

struct Turn {
  std::uint32_t num_prompt_tokens = 0, num_output_tokens = 0;
  std::string tool;
  double after_s = 0.0;
};

struct Job {
  double start_s = 0.0;
  std::vector<Turn> turns{};
};

struct Variant {
  const char* name;
  SchedulingPolicy policy;
  bool pins_give_way, pins_end_with_job;  // `quire serve` has a third fix, which has no effect if every request has a job
};

[[noreturn]] void stop(std::string_view what) {
  fmt::print(stderr, "{}\n", what);
  std::exit(1);
}

std::vector<Job> read(std::istream& in) {
  std::vector<Job> jobs;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string kind;
    words >> kind;
    if (kind == "job") {
      words >> jobs.emplace_back().start_s;
    } else {
      if (kind != "turn" || jobs.empty()) stop("a line is neither 'job' nor a 'turn' of one: " + line);
      Turn& turn = jobs.back().turns.emplace_back();
      words >> turn.num_prompt_tokens >> turn.num_output_tokens >> turn.tool >> turn.after_s;
    }
    if (!words) stop("a line lacks numbers:  " + line);
  }
  return jobs;
}

TokenId token_at(std::size_t job, std::uint32_t position) {
  const std::uint64_t x = (position < kShared ? 0 : job + 1) * 0x9e3779b97f4a7c15U + position * 0xbf58476d1ce4e5b9U;
  return static_cast<TokenId>((x ^ (x >> 29U)) % 100'000);
}

class Replay {
 public:
  Replay(const std::vector<Job>& jobs, std::uint32_t num_blocks, const Variant& variant) : jobs_(jobs), variant_(variant) {
    CoreConfig config;
    config.scheduler.policy = variant.policy;
    config.scheduler.max_num_batched_tokens = 8192;
    config.scheduler.max_model_len = kMaxLen;
    config.scheduler.max_num_waiting = static_cast<std::uint32_t>(jobs.size());
    config.scheduler.async_scheduling = config.report.log_stats = config.report.count_common_prefix = false;
    config.limits.max_outstanding_plans = 1;
    config.continuum.pins_give_way = variant.pins_give_way;
    config.continuum.pins_end_with_job = variant.pins_end_with_job;
    config.fixes.forget_unwritten_blocks = true;
    config.kv.num_blocks = num_blocks + 1;
    config.kv.groups.push_back({.layer_names = {}, .spec = FullAttentionSpec{}, .layer_specs = {}});
    auto core = Core::create(config);
    if (!core) stop(core.error().to_string());
    core_ = std::move(*core);
  }

  void run() {
    for (std::size_t job = 0; job < jobs_.size(); ++job) arrivals_.push({jobs_[job].start_s, job, 0});
    while (!arrivals_.empty() || core_->has_work()) {
      while (!arrivals_.empty() && (arrivals_.top().at_s <= now_s_ || !core_->has_work())) arrive();
      step();
    }
  }

  void print() {
    std::ranges::sort(job_s_);
    double sum = 0.0;
    for (const double s : job_s_) sum += s;
    const auto share = [&](double part) { return job_s_[static_cast<std::size_t>(part * static_cast<double>(job_s_.size() - 1))]; };
    fmt::print("{:17} {:9.1f} {:9.1f} {:9.1f} {:9.1f} {:9.1f} % {:9}\n", variant_.name, sum / static_cast<double>(job_s_.size()),
               share(0.5), share(0.95), now_s_, 100.0 * static_cast<double>(num_cached_) / static_cast<double>(num_prompt_),
               core_->counters().num_preemptions);
  }

 private:
  struct Arrival {
    double at_s;
    std::size_t job, turn;
    bool operator<(const Arrival& other) const { return at_s > other.at_s; }  // orders by time, the earliest first
  };

  void arrive() {
    const Arrival arrival = arrivals_.top();
    arrivals_.pop();
    now_s_ = std::max(now_s_, arrival.at_s);
    const Turn& turn = jobs_[arrival.job].turns[arrival.turn];
    std::vector<TokenId> prompt(turn.num_prompt_tokens);
    for (std::uint32_t i = 0; i < turn.num_prompt_tokens; ++i) prompt[i] = token_at(arrival.job, i);
    const RequestTags tags{.job = std::to_string(arrival.job),
                           .is_last_step = arrival.turn + 1 == jobs_[arrival.job].turns.size(),
                           .tool = turn.tool == "-" ? "" : turn.tool};
    const RequestId id{requests_.size()};
    requests_.push_back({arrival, turn.num_prompt_tokens});
    num_prompt_ += turn.num_prompt_tokens;
    const auto added = core_->add(
        {.id = id, .prompt = prompt, .arrival_time = arrival.at_s, .max_tokens = turn.num_output_tokens, .tags = &tags}, {.now = now_s_});
    if (!added) stop(added.error().to_string());
  }

  void step() {
    const StepPlan& plan = core_->schedule({.now = now_s_});
    sampled_.clear();
    for (const ScheduledRequest& s : plan.scheduled)
      if (s.samples) sampled_.push_back({s.id, token_at(requests_[s.id.value].arrival.job, requests_[s.id.value].num_tokens++)});
    now_s_ += std::max(kStepTime.step_s, kStepTime(plan));  // an empty step takes time, too, so that time advances
    StepResult result;
    result.step = plan.step;
    result.sampled = sampled_;
    const auto applied = core_->apply(result, {.now = now_s_});
    if (!applied) stop(applied.error().to_string());
    for (const RequestUpdate& update : (*applied)->updates)
      if (update.finished) ended(requests_[update.id.value].arrival, update.num_cached_tokens);
  }

  void ended(Arrival arrival, std::int64_t num_cached_tokens) {
    num_cached_ += static_cast<std::uint64_t>(std::max<std::int64_t>(0, num_cached_tokens));
    const Job& job = jobs_[arrival.job];
    if (arrival.turn + 1 == job.turns.size()) return job_s_.push_back(now_s_ - job.start_s);
    arrivals_.push({now_s_ + job.turns[arrival.turn].after_s, arrival.job, arrival.turn + 1});
  }

  struct Live {
    Arrival arrival;
    std::uint32_t num_tokens;
  };
  const std::vector<Job>& jobs_;
  const Variant variant_;
  std::unique_ptr<Core> core_;
  std::priority_queue<Arrival> arrivals_;
  std::vector<Live> requests_;  // by request id
  std::vector<SampledToken> sampled_;
  std::vector<double> job_s_;
  std::uint64_t num_prompt_ = 0, num_cached_ = 0;
  double now_s_ = 0.0;
};

}  // namespace

int main(int argc, char** argv) {
  const std::uint32_t num_blocks = argc == 2 ? static_cast<std::uint32_t>(std::strtoul(argv[1], nullptr, 10)) : 0;
  if (num_blocks == 0) stop("usage: agents_bench BLOCKS <SESSIONS");
  const std::vector<Job> jobs = read(std::cin);
  if (jobs.empty()) stop("no sessions on the standard input");
  fmt::print("{} jobs, {} blocks; s in virtual time\n", jobs.size(), num_blocks);
  fmt::print("{:17} {:>9} {:>9} {:>9} {:>9} {:>11} {:>9}\n", "", "mean job", "median", "95 %", "all", "cached", "preempted");
  constexpr SchedulingPolicy kContinuum = SchedulingPolicy::continuum;
  for (const Variant& variant :
       {Variant{"fcfs", SchedulingPolicy::fcfs, false, false}, Variant{"continuum, exact", kContinuum, false, false},
        Variant{"pins_end_with_job", kContinuum, false, true}, Variant{"pins_give_way", kContinuum, true, false},
        Variant{"both (serve)", kContinuum, true, true}}) {
    Replay replay(jobs, num_blocks, variant);
    replay.run();
    replay.print();
  }
}
