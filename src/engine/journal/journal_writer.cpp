// The core's thread appends each call to what waits, and the writing thread takes all that waits at once, makes a frame of it, and writes.
// The core's thread never waits for the disk: no lock is held while a frame is made or written. It wakes the other one where nothing
// waited before, so at most once in JournalPace::gather_ms.
#include "engine/journal/journal_writer.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "core/journal/journal_form.h"
#include "quire/version.h"

namespace quire {
namespace {

constexpr std::uint64_t kSmallestBudget = std::uint64_t{1} << 20U;

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
  auto journal = std::unique_ptr<JournalWriter>(new JournalWriter(std::move(*file), seams, pace));
  const double now_s = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const std::vector<std::uint8_t> beginning = journal_beginning({.quire_version = std::string(kVersion),
                                                                 .decision_profile = std::string(kDecisionProfile),
                                                                 .start_time_s = now_s,
                                                                 .config = config,
                                                                 .seams = journal->recorder_.which()});
  if (journal->file_.append(beginning)) {
    return fail(ErrorCode::invalid_argument, "journal", fmt::format("'{}' cannot be written", journal->path_),
                "give a folder with room on its disk");
  }
  journal->num_bytes_ = journal->file_.size();
  journal->thread_ = std::thread([&writer = *journal] { writer.run(); });
  return journal;
}

JournalWriter::JournalWriter(JournalFile file, const CoreSeams& seams, const JournalPace& pace)
    : pace_(pace),
      recorder_(seams, [this](std::span<const std::uint8_t> call) { put(call); }),
      path_(file.path()),
      file_(std::move(file)) {}

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

void JournalWriter::put(std::span<const std::uint8_t> call) {
  if (end_.load(std::memory_order_relaxed) != JournalEnd::cut) return;
  bool was_empty = false;
  {
    const std::lock_guard lock(mutex_);
    too_slow_ = too_slow_ || waiting_.size() + call.size() > pace_.max_waiting_bytes;
    if (too_slow_) return;
    was_empty = waiting_.empty();
    waiting_.insert(waiting_.end(), call.begin(), call.end());
  }
  if (was_empty) wake_.notify_one();
}

void JournalWriter::flush() {
  std::unique_lock lock(mutex_);
  flushing_ = true;
  wake_.notify_one();
  idle_.wait(lock, [this] { return (waiting_.empty() && !writing_) || end().has_value(); });
  flushing_ = false;
}

void JournalWriter::run() {
  std::vector<std::uint8_t> calls;
  bool goes_on = true, is_last = false;
  while (goes_on && !is_last) {
    bool is_too_slow = false;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
      wake_.wait_for(lock, std::chrono::milliseconds(pace_.gather_ms), [this] { return stopping_ || flushing_; });
      calls.clear();
      calls.swap(waiting_);
      is_too_slow = too_slow_;
      is_last = stopping_;
      writing_ = true;
    }
    goes_on = write(calls, is_too_slow);
    {
      const std::lock_guard lock(mutex_);
      writing_ = false;
    }
    idle_.notify_all();
  }
  if (goes_on) finish(JournalEnd::stopped);
}

bool JournalWriter::write(std::span<const std::uint8_t> calls, bool is_too_slow) {
  frame_.clear();
  if (!calls.empty()) append_frame(frame_, file_.size(), FrameKind::calls, calls);
  std::optional<JournalEnd> end = file_.append(frame_);
  if (!end && is_too_slow) end = JournalEnd::too_slow;
  num_bytes_.store(file_.size(), std::memory_order_relaxed);
  if (end) finish(*end);
  return !end;
}

void JournalWriter::finish(JournalEnd end) {
  end_.store(end, std::memory_order_relaxed);
  file_.finish(end);
  num_bytes_.store(file_.size(), std::memory_order_relaxed);
}

}  // namespace quire
