// Replays a journal: a core with the recorded configuration receives the recorded calls, and its seams return the recorded answers. Each
// answer of the core is digested as in the recording, and the digests are compared. The first difference ends the replay, because later
// calls depend on the earlier decisions.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>
#include <variant>

#include "lab/replay/replayed_call.h"
#include "quire/journal.h"
#include "quire/seam_record.h"

namespace quire {
namespace {

constexpr std::size_t kNumShown = 24;  // maximum number of entries of a list in error texts

// Reads the bytes that the file has when reading starts, even if the file grows meanwhile.
Result<std::vector<std::uint8_t>> read_all(const std::string& path) {
  std::error_code error;
  const std::uint64_t size = std::filesystem::file_size(path, error);
  std::ifstream file(path, std::ios::binary);
  if (error || !file) {
    return fail(ErrorCode::not_found, "JOURNAL",
                fmt::format("'{}' cannot be read: {}", path, error ? error.message() : std::strerror(errno)),
                "use a file that quire serve --journal has written");
  }
  std::vector<std::uint8_t> bytes(size);
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  bytes.resize(static_cast<std::size_t>(file.gcount()));
  return bytes;
}

std::string text_of(std::span<const RequestId> ids) {
  std::vector<std::uint64_t> values;
  for (const RequestId id : ids.first(std::min(ids.size(), kNumShown))) values.push_back(id.value);
  return fmt::format("{}:{}{}{}", ids.size(), values.empty() ? "" : " ", fmt::join(values, " "), ids.size() > kNumShown ? " ..." : "");
}

// Numbers of the last plan for error texts. They are copied, because the views of a plan become invalid when the plan is applied.
struct LastPlan {
  StepId step{};
  std::size_t num_requests = 0;
  std::uint32_t num_tokens = 0;
  std::vector<ScheduledRequest> scheduled;  // only their numbers are valid, not their views
  std::vector<RequestId> preempted;
  std::size_t num_transfers = 0;

  void take(const StepPlan& plan) {
    step = plan.step;
    num_requests = plan.scheduled.size();
    num_tokens = plan.num_scheduled_tokens;
    scheduled.assign(plan.scheduled.begin(), plan.scheduled.begin() + static_cast<std::ptrdiff_t>(std::min(num_requests, kNumShown)));
    preempted.assign(plan.preempted.begin(), plan.preempted.end());
    num_transfers = plan.transfers.size();
  }
  [[nodiscard]] std::string text() const {
    std::string text = fmt::format("last plan: step {}, {} requests, {} tokens:", step.value, num_requests, num_tokens);
    for (const ScheduledRequest& s : scheduled) text += fmt::format(" {}[{}+{}]", s.id.value, s.num_computed_tokens, s.num_tokens);
    if (num_requests > scheduled.size()) text += " ...";
    return text + fmt::format("; preempted {}; {} transfers", text_of(preempted), num_transfers);
  }
};

std::string text_of(const JournalAnswer& answer) {
  switch (answer.kind) {
    case JournalAnswer::Kind::planned:
      return fmt::format("plan {:016x}", answer.value);
    case JournalAnswer::Kind::applied:
      return fmt::format("outcome {:016x}", answer.value);
    case JournalAnswer::Kind::refused:
      return "a rejected result";
    case JournalAnswer::Kind::answered:
      return fmt::format("{}", answer.value);
  }
  return {};
}

class Replay {
 public:
  Replay(JournalReader& reader, const ReplayOptions& options) : reader_(reader), options_(options), player_(reader.header().seams) {}

  Result<ReplayReport> run(std::size_t num_bytes) {
    const auto begin = std::chrono::steady_clock::now();
    report_.header = reader_.header();
    CoreConfig config = report_.header.config;
    if (options_.change_config) options_.change_config(config);
    replayed_.also = options_.also;
    replayed_.with_tokens = !report_.header.seams.omits_tokens;
    if (Result<void> made = make_core(config); !made) return std::unexpected(std::move(made.error()));
    max_plans_ = config.limits.max_outstanding_plans;
    std::size_t last_position = 0;
    while (!report_.difference && reader_.next() && play()) {
      if (!options_.progress || reader_.position() == last_position) continue;
      last_position = reader_.position();
      options_.progress(std::min(0.999, static_cast<double>(last_position) / static_cast<double>(num_bytes)));
    }
    if (options_.progress) options_.progress(1.0);
    report_.replay_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return count();
  }

 private:
  // Returns the core's state in the form of the journal's checkpoints, with or without tokens.
  [[nodiscard]] std::vector<std::uint8_t> state() const {
    return core_->checkpoint(replayed_.with_tokens ? CheckpointTokens::kept : CheckpointTokens::left_out);
  }

  Result<void> make_core(const CoreConfig& config) {
    CoreSeams seams = player_.seams();
    seams.calls = &replayed_;
    const JournalCheckpoint* const start = reader_.start();
    auto core = start != nullptr ? Core::restore(config, seams, start->state) : Core::create(config, seams);
    if (!core) return std::unexpected(std::move(core.error()));
    core_ = std::move(*core);
    at_.run_start_s = report_.header.start_time_s;
    if (start == nullptr) return {};
    at_ = *start;
    at_.state = {};
    report_.start = at_;
    num_earlier_preemptions_ = core_->counters().num_preemptions;
    if (at_.progress.num_steps > 0) last_.step = StepId{at_.progress.num_steps - 1};
    const ReplayReport* const before = options_.before;
    if (before == nullptr || before->last.run_start_s != start->run_start_s || before->last.progress.num_calls != start->progress.num_calls)
      return {};
    ++report_.num_checkpoints;
    if (!std::ranges::equal(before->last_state, start->state)) differs("begin", "the replay of the previous file ends in another state");
    return {};
  }

  // Compares the checkpoint before this call, if there is one, with the state of the core.
  void compare_state() {
    const JournalCheckpoint* const checkpoint = reader_.checkpoint();
    if (checkpoint == nullptr) return;
    ++report_.num_checkpoints;
    if (!std::ranges::equal(state(), checkpoint->state)) differs("checkpoint", "the journal has another state of the core");
  }

  // Makes the call that was read. Returns false if the call cannot be made.
  bool play() {
    compare_state();
    if (report_.difference) return false;
    if (std::holds_alternative<core_call::Schedule>(reader_.call()) && core_->num_outstanding_plans() >= max_plans_) {
      report_.damage = "it has one plan more than its configuration allows";
      return false;
    }
    player_.give(reader_.answers());
    if (const StepPlan* plan = reader_.play(*core_)) last_.take(*plan);
    if (Result<void> asked = player_.status(); !asked)
      differs(replayed_.text(), fmt::format("the core makes other calls to its seams: {}", asked.error().message));
    else if (replayed_.answer != reader_.answer())
      differs(replayed_.text(), fmt::format("the journal has {}, the replay has {}", text_of(reader_.answer()), text_of(replayed_.answer)));
    else if (player_.num_left() > 0)
      differs(replayed_.text(), fmt::format("{} seam calls of the journal are missing in the replay", player_.num_left()));
    ++report_.num_calls;
    return true;
  }

  void differs(const std::string& which, const std::string& how) {
    std::vector<RequestId> running, waiting, skipped;
    core_->queues(running, waiting, skipped);
    const CoreCounters c = core_->counters();
    report_.difference = {
        .step = last_.step,
        .call = report_.num_calls,
        .what = fmt::format("{}: {}", which, how),
        .state = fmt::format("{}\nrunning {}\nwaiting {}; skipped {}\nblocks: {} of {} free, {} cached; {} plans outstanding", last_.text(),
                             text_of(running), text_of(waiting), text_of(skipped), c.num_free_blocks, c.num_blocks, c.num_cached_blocks,
                             core_->num_outstanding_plans())};
  }

  ReplayReport count() {
    report_.num_steps = replayed_.num_steps;
    report_.num_requests = replayed_.num_requests;
    report_.num_forks = replayed_.num_forks;
    report_.num_tokens = replayed_.num_tokens;
    report_.num_preemptions = core_->counters().num_preemptions - num_earlier_preemptions_;
    report_.recorded_s = replayed_.last_s - replayed_.first_s;
    report_.end = reader_.end();
    if (report_.damage.empty()) report_.damage = reader_.damage();
    at_.progress.num_calls += report_.num_calls;
    at_.progress.num_steps += replayed_.num_steps;
    if (replayed_.num_steps > 0) at_.progress.now_s = replayed_.last_s;
    report_.last = at_;
    report_.last_state = state();
    return std::move(report_);
  }

  JournalReader& reader_;
  const ReplayOptions& options_;
  SeamPlayer player_;
  ReplayedCall replayed_;
  std::unique_ptr<Core> core_;
  std::uint32_t max_plans_ = 0;
  std::uint64_t num_earlier_preemptions_ = 0;
  JournalCheckpoint at_;  // without the state
  LastPlan last_;
  ReplayReport report_;
};

}  // namespace

Result<ReplayReport> replay(const std::string& path, const ReplayOptions& options) {
  const auto bytes = read_all(path);
  if (!bytes) return std::unexpected(bytes.error());
  auto reader = JournalReader::open(*bytes);
  if (!reader) return std::unexpected(std::move(reader.error()));
  const std::string& profile = (*reader)->header().decision_profile;
  if (profile != kDecisionProfile) {
    return fail(ErrorCode::unsupported, "JOURNAL",
                fmt::format("was recorded with decision profile {}, but this quire has {}", profile, kDecisionProfile),
                "replay it with the quire version that recorded it");
  }
  return Replay(**reader, options).run(bytes->size());
}

}  // namespace quire
