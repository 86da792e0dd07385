// What a simulation takes from a journal: it is replayed, and what requests got and how long steps took is gathered from the calls. Called
// by the lab's programs, on their thread. A journal that does not replay whole is refused, since its numbers would be of another run.
#include "lab/replay/journal_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "core/journal/journal_form.h"
#include "core/journal/recorded_call.h"
#include "core/journal/write_call.h"
#include "lab/replay/recorded_workload.h"
#include "lab/replay/stand_ins.h"
#include "quire/journal.h"

namespace quire {
namespace {

// Without the version: another one's is a journal that replay() refuses with a reason.
constexpr std::size_t kNumMagic = 7;

// Follows a replay, which is whole.
Result<ReplayReport> follow(const std::string& path, CallSink& follower) {
  auto report = replay(path, {.also = &follower});
  if (!report) return report;
  if (const std::optional<ReplayDifference>& difference = report->difference; difference.has_value())
    return fail(ErrorCode::corrupt, "JOURNAL", fmt::format("'{}' does not replay: {}", path, difference->what),
                "quire replay shows the first difference");
  return report;
}

// Plans and results follow each other; several may be out.
class StepTimes final : public CallSink {
 public:
  void schedule(const StepInput& input) override { planned_s_ = input.now; }
  void planned(const StepPlan& plan) override {
    Planned& step = open_.emplace_back(Planned{.sizes = {}, .planned_s = planned_s_, .num_tokens = plan.num_scheduled_tokens});
    for (const ScheduledRequest& scheduled : plan.scheduled) add_sizes(scheduled, step.sizes);
  }
  void apply(const StepResult& /*result*/, const StepInput& input) override { applied_s_ = input.now; }
  void applied(const StepOutcome* outcome) override {
    if (outcome == nullptr || open_.empty()) return;
    const Planned step = open_.front();
    open_.pop_front();
    const double seconds = applied_s_ - std::max(over_s_, step.planned_s);
    over_s_ = applied_s_;
    if (step.num_tokens > 0 && seconds > 0.0) steps.push_back({.sizes = step.sizes, .seconds = seconds});
  }
  void add(const NewRequest& /*request*/, const StepInput& /*input*/) override {}
  void continue_session(RequestId /*id*/, const SessionInput* /*input*/, const StepInput& /*now*/) override {}
  void fork(RequestId /*parent*/, const ForkRequest& /*child*/, const StepInput& /*input*/) override {}
  void set_drafts(std::span<const Draft> /*drafts*/) override {}
  void set_drafts_in_plan(std::span<const Draft> /*drafts*/) override {}
  void finish(RequestId /*id*/, RequestStatus /*status*/, const StepInput& /*input*/) override {}
  void finish(std::span<const RequestId> /*ids*/, RequestStatus /*status*/, const StepInput& /*input*/) override {}
  void forget_blocks(RequestId /*id*/) override {}
  void reset_prefix_cache(bool /*preempt*/, bool /*connector*/, const StepInput& /*input*/) override {}
  void end_pins() override {}
  void reset_connector_cache() override {}
  void reset_encoder_cache() override {}
  void set_swap_costs(const SwapCosts& /*costs*/) override {}
  void set_pause_state(PauseState /*state*/) override {}
  void make_stats() override {}
  void answered(std::uint64_t /*answer*/) override {}

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

// What add() was given.
class WrittenRequest final : public CallBytes {
 public:
  void add(const NewRequest& request, const StepInput& /*input*/) override {
    prompt.assign(request.prompt.begin(), request.prompt.end());
    arrival_time = request.arrival_time;
  }
  std::vector<TokenId> prompt;
  double arrival_time = 0.0;
};

void add_request(RecordedWorkload& recorded, const RecordedWorkload::Arrival& arrival, bool has_arrivals, Workload& workload) {
  ByteReader in(arrival.call);
  RecordedCall call;
  call.read(in);
  WrittenRequest written;
  call.tell(written);
  WorkloadRequest& request = workload.requests.emplace_back();
  // When its client sent it; the core hears of it when the step under way is over.
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
  return fmt::format("its core had --kv-blocks {} --block-size {} --max-num-seqs {} --max-num-batched-tokens {} --max-model-len {}{}",
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
    return fail(ErrorCode::invalid_argument, "JOURNAL", fmt::format("'{}' holds no request that came", path), "give one with some traffic");
  Workload workload;
  workload.name = std::filesystem::path(path).filename();
  if (report->header.seams.leaves_tokens_out) {
    put_stand_ins(recorded, report->header.config);
    workload.notes.emplace_back("tokens are left out of it: prompts have others, alike where theirs were alike, block by block");
  }
  const bool has_arrivals = std::ranges::all_of(recorded.arrivals, &RecordedWorkload::Arrival::has_arrival_time);
  for (const RecordedWorkload::Arrival& arrival : recorded.arrivals) add_request(recorded, arrival, has_arrivals, workload);
  workload.notes.push_back(set_up_as(report->header.config));
  workload.notes.emplace_back("what an answer leaves in the cache is not found by the next prompt");
  if (report->start) workload.notes.emplace_back("it begins in the middle of a run: requests that were known by then are not in it");
  if (!recorded.missing.empty()) workload.notes.push_back(fmt::format("{} of it are not played, or as plain requests", recorded.missing));
  return workload;
}

Result<std::vector<TimedStep>> steps_of_journal(const std::string& path) {
  StepTimes times;
  if (const auto report = follow(path, times); !report) return std::unexpected(report.error());
  return std::move(times.steps);
}

}  // namespace quire
