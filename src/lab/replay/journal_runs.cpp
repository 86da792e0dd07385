// Reads a workload or step durations from a journal. The journal is replayed, and the replayed calls give the tokens of the requests and
// the durations of the steps. Called by the lab's programs on their thread. If a decision of the replay differs, the journal is rejected,
// because the results would describe another run.
#include "lab/replay/journal_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>
#include <variant>

#include "core/journal/call_bytes.h"
#include "core/journal/journal_format.h"
#include "lab/replay/placeholder_tokens.h"
#include "lab/replay/recorded_workload.h"
#include "quire/journal.h"

namespace quire {
namespace {

// Length of the magic number without the version. replay() reports a journal of another version as an error.
constexpr std::size_t kNumMagic = 7;

// Replays a journal and passes its calls to `follower`. Errors: the errors of replay(), and a decision that differs.
Result<ReplayReport> follow(const std::string& path, CallSink& follower) {
  auto report = replay(path, {.also = &follower});
  if (!report) return report;
  if (const std::optional<ReplayDifference>& difference = report->difference; difference.has_value())
    return fail(ErrorCode::corrupt, "JOURNAL", fmt::format("'{}' does not replay: {}", path, difference->what),
                "run quire replay to see the first difference");
  return report;
}

// Measures the durations of steps. Results arrive in the order of the plans, and several plans may be in flight.
class StepTimes final : public CallSink {
 public:
  void on_call(const CoreCall& call) override {
    if (const auto* const schedule = std::get_if<core_call::Schedule>(&call)) planned_s_ = schedule->input.now;
    if (const auto* const apply = std::get_if<core_call::Apply>(&call)) applied_s_ = apply->input.now;
  }
  void planned(const StepPlan& plan) override {
    Planned& step = open_.emplace_back(Planned{.sizes = {}, .planned_s = planned_s_, .num_tokens = plan.num_scheduled_tokens});
    for (const ScheduledRequest& scheduled : plan.scheduled) add_sizes(scheduled, step.sizes);
  }
  void applied(const StepOutcome* outcome) override {
    if (outcome == nullptr || open_.empty()) return;
    const Planned step = open_.front();
    open_.pop_front();
    const double seconds = applied_s_ - std::max(over_s_, step.planned_s);
    over_s_ = applied_s_;
    if (step.num_tokens > 0 && seconds > 0.0) steps.push_back({.sizes = step.sizes, .seconds = seconds});
  }

  std::vector<TimedStep> steps;

 private:
  struct Planned {
    StepSizes sizes;
    double planned_s = 0.0;
    std::uint32_t num_tokens = 0;
  };

  static void add_sizes(const ScheduledRequest& scheduled, StepSizes& sizes) {
    const auto count = static_cast<double>(scheduled.num_tokens), computed = static_cast<double>(scheduled.num_computed_tokens);
    if (scheduled.num_tokens == 1) {
      ++sizes.decode_rows;
      sizes.context_tokens += computed + 1.0;
      return;
    }
    sizes.prefill_tokens += count;
    sizes.prefill_pairs += count * (computed + (count + 1.0) / 2.0);
  }

  std::deque<Planned> open_;
  double planned_s_ = 0.0, applied_s_ = 0.0, over_s_ = 0.0;
};

void add_request(RecordedWorkload& recorded, const RecordedWorkload::Arrival& arrival, bool has_arrivals, Workload& workload) {
  ByteReader in(arrival.call);
  RecordedCall call;
  call.read(in);
  const NewRequest& written = std::get<core_call::Add>(call.call()).request;
  WorkloadRequest& request = workload.requests.emplace_back();
  // Uses the time at which the client sent the request, if known. The core receives a request only after the step in flight.
  request.start_s = has_arrivals ? written.arrival_time : arrival.time_s;
  request.session = static_cast<std::uint32_t>(workload.requests.size() - 1);
  request.ends_session = true;
  request.prompt_tokens = static_cast<std::uint32_t>(arrival.num_prompt_tokens);
  request.output_tokens = static_cast<std::uint32_t>(std::max<std::size_t>(1, recorded.tokens[arrival.id].size()));
  request.first_token = workload.tokens.size();
  request.has_tokens = true;
  workload.tokens.insert(workload.tokens.end(), written.prompt.begin(), written.prompt.end());
}

std::string set_up_as(const CoreConfig& config) {
  return fmt::format("recorded with --kv-blocks {} --block-size {} --max-num-seqs {} --max-num-batched-tokens {} --max-model-len {}{}",
                     config.kv.num_blocks, config.block_size, config.scheduler.max_num_seqs, config.scheduler.max_num_batched_tokens,
                     config.scheduler.max_model_len, config.scheduler.async_scheduling ? "" : " --no-async-scheduling");
}

}  // namespace

bool is_journal(const std::string& path) {
  std::array<char, kNumMagic> first{};
  std::ifstream file(path, std::ios::binary);
  return file.read(first.data(), first.size()) &&
         std::ranges::equal(first, std::span(kJournalMagic).first(kNumMagic), {}, [](char c) { return static_cast<std::uint8_t>(c); });
}

Result<Workload> workload_of_journal(const std::string& path) {
  RecordedWorkload recorded;
  const auto report = follow(path, recorded);
  if (!report) return std::unexpected(report.error());
  if (recorded.arrivals.empty())
    return fail(ErrorCode::invalid_argument, "JOURNAL", fmt::format("'{}' contains no requests", path), "use a journal with traffic");
  Workload workload;
  workload.name = std::filesystem::path(path).filename();
  if (report->header.seams.omits_tokens) {
    fill_placeholder_tokens(recorded, report->header.config);
    workload.notes.emplace_back("the journal has no tokens: prompts get random tokens that share blocks as the recorded prompts did");
  }
  const bool has_arrivals = std::ranges::all_of(recorded.arrivals, &RecordedWorkload::Arrival::has_arrival_time);
  for (const RecordedWorkload::Arrival& arrival : recorded.arrivals) add_request(recorded, arrival, has_arrivals, workload);
  workload.notes.push_back(set_up_as(report->header.config));
  workload.notes.emplace_back("prompts do not hit cached blocks of earlier outputs");
  if (report->start) workload.notes.emplace_back("the journal begins in the middle of a run: requests from before are not included");
  if (!recorded.missing.empty()) workload.notes.push_back(fmt::format("{} are left out or played as plain requests", recorded.missing));
  return workload;
}

Result<std::vector<TimedStep>> steps_of_journal(const std::string& path) {
  StepTimes times;
  if (const auto report = follow(path, times); !report) return std::unexpected(report.error());
  return std::move(times.steps);
}

}  // namespace quire
