// The core's thread appends each call to what waits, and the writing thread takes all that waits at once, makes a frame of it, and writes.
// The core's thread never waits for the disk: no lock is held while a frame is made or written. It wakes the other one where nothing
// waited before, so at most once in JournalPace::gather_ms. What the core's thread pays for besides is the state of the core, once for a
// file.
#include "engine/journal/journal_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/journal/journal_form.h"
#include "quire/version.h"

namespace quire {
namespace {

constexpr std::uint64_t kSmallestBudget = std::uint64_t{64} << 10U;

double now_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

Result<std::unique_ptr<CoreJournal>> CoreJournal::create(const JournalOptions& options, const CoreConfig& config, const CoreSeams& seams) {
  auto journal = JournalWriter::create(options, config, seams);
  if (!journal) return std::unexpected(std::move(journal.error()));
  return std::move(*journal);
}

Result<std::unique_ptr<JournalWriter>> JournalWriter::create(const JournalOptions& options, const CoreConfig& config,
                                                             const CoreSeams& seams, const JournalPace& pace) {
  if (options.max_bytes < kSmallestBudget) {
    return fail(ErrorCode::invalid_argument, "journal_max_bytes", fmt::format("is {}", options.max_bytes),
                fmt::format("give {} or more", kSmallestBudget));
  }
  auto file = JournalFile::create(options.folder, options.max_bytes);
  if (!file) return std::unexpected(std::move(file.error()));
  auto journal = std::unique_ptr<JournalWriter>(new JournalWriter(std::move(*file),
                                                                  {.quire_version = std::string(kVersion),
                                                                   .decision_profile = std::string(kDecisionProfile),
                                                                   .start_time_s = now_s(),
                                                                   .config = config},
                                                                  options.max_bytes, seams, pace));
  if (journal->file_.append(journal_beginning(journal->header_))) {
    return fail(ErrorCode::invalid_argument, "journal", fmt::format("'{}' cannot be written", journal->path_),
                "give a folder with room on its disk");
  }
  journal->num_bytes_ = journal->file_.size();
  journal->thread_ = std::thread([&writer = *journal] { writer.run(); });
  return journal;
}

void JournalWriter::Told::clear() {
  calls.clear();
  cuts.clear();
  state_bytes = 0;
}

JournalWriter::JournalWriter(JournalFile file, JournalHeader header, std::uint64_t max_bytes, const CoreSeams& seams,
                             const JournalPace& pace)
    : pace_(pace),
      max_bytes_(max_bytes),
      recorder_(seams, [this](std::span<const std::uint8_t> call) { put(call); }),
      calls_left_(calls_until_next(0)),
      header_(std::move(header)),
      run_start_s_(header_.start_time_s),
      file_(std::move(file)),
      path_(file_.path()) {
  header_.seams = recorder_.which();
}

JournalWriter::~JournalWriter() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

std::optional<JournalEnd> JournalWriter::end() const {
  const JournalEnd end = end_.load(std::memory_order_relaxed);
  return end == JournalEnd::cut ? std::nullopt : std::optional(end);
}

std::string JournalWriter::path() const {
  const std::lock_guard lock(mutex_);
  return path_;
}

std::uint64_t JournalWriter::calls_until_next(std::uint64_t checkpoint_bytes) const {
  return pace_.calls_per_checkpoint != 0 ? pace_.calls_per_checkpoint : calls_per_checkpoint(max_bytes_, checkpoint_bytes);
}

void JournalWriter::put(std::span<const std::uint8_t> call) {
  if (end_.load(std::memory_order_relaxed) != JournalEnd::cut) return;
  calls_left_ -= std::min<std::uint64_t>(calls_left_, call.size());
  bool was_empty = false;
  {
    const std::lock_guard lock(mutex_);
    too_slow_ = too_slow_ || waiting_.calls.size() + call.size() > pace_.max_waiting_bytes;
    if (too_slow_) return;
    was_empty = waiting_.calls.empty();
    waiting_.calls.insert(waiting_.calls.end(), call.begin(), call.end());
  }
  if (was_empty) wake_.notify_one();
  if (calls_left_ == 0 && recorder_.can_checkpoint()) put_state();
}

void JournalWriter::put_state() {
  Cut cut{.progress = recorder_.progress(), .state = recorder_.checkpoint()};
  calls_left_ = calls_until_next(cut.state.size());
  const std::lock_guard lock(mutex_);
  const std::uint64_t state_bytes = waiting_.state_bytes + cut.state.size();
  if (!waiting_.cuts.empty() && state_bytes > pace_.max_waiting_bytes) return;
  waiting_.state_bytes = state_bytes;
  cut.at = waiting_.calls.size();
  waiting_.cuts.push_back(std::move(cut));
}

void JournalWriter::flush() {
  std::unique_lock lock(mutex_);
  flushing_ = true;
  wake_.notify_one();
  idle_.wait(lock, [this] { return (waiting_.calls.empty() && !writing_) || end().has_value(); });
  flushing_ = false;
}

void JournalWriter::run() {
  Told told;
  bool goes_on = true, is_last = false;
  while (goes_on && !is_last) {
    bool is_too_slow = false;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !waiting_.calls.empty(); });
      wake_.wait_for(lock, std::chrono::milliseconds(pace_.gather_ms), [this] { return stopping_ || flushing_; });
      told.clear();
      std::swap(told, waiting_);
      is_too_slow = too_slow_;
      is_last = stopping_;
      writing_ = true;
    }
    goes_on = write(told, is_too_slow);
    {
      const std::lock_guard lock(mutex_);
      writing_ = false;
    }
    idle_.notify_all();
  }
  if (goes_on) finish(JournalEnd::stopped);
}

bool JournalWriter::write(const Told& told, bool is_too_slow) {
  const std::span<const std::uint8_t> calls = told.calls;
  std::size_t done = 0;
  std::optional<JournalEnd> end;
  for (std::size_t i = 0; i < told.cuts.size() && !end; ++i) {
    end = append(calls.subspan(done, told.cuts[i].at - done));
    done = told.cuts[i].at;
    if (!end) go_on(told.cuts[i]);
  }
  if (!end) end = append(calls.subspan(done));
  if (!end && is_too_slow) end = JournalEnd::too_slow;
  num_bytes_.store(file_.total_size(), std::memory_order_relaxed);
  if (end) finish(*end);
  return !end;
}

std::optional<JournalEnd> JournalWriter::append(std::span<const std::uint8_t> calls) {
  if (calls.empty()) return std::nullopt;
  frame_.clear();
  append_frame(frame_, file_.size(), FrameKind::calls, calls);
  return file_.append(frame_);
}

// Where there is no room for another file, this one goes on.
void JournalWriter::go_on(const Cut& cut) {
  header_.start_time_s = now_s();
  frame_ = journal_beginning(header_);
  append_frame(frame_, frame_.size(), FrameKind::checkpoint,
               journal_checkpoint({.run_start_s = run_start_s_, .number = ++num_states_, .progress = cut.progress, .state = cut.state}));
  if (!file_.begin_next(frame_)) return;
  const std::lock_guard lock(mutex_);
  path_ = file_.path();
}

void JournalWriter::finish(JournalEnd end) {
  end_.store(end, std::memory_order_relaxed);
  file_.finish(end);
  num_bytes_.store(file_.total_size(), std::memory_order_relaxed);
}

}  // namespace quire
