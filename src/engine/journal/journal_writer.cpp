// Implements the journal's two threads. The core's thread appends each call to a waiting list. It wakes the writing thread only if the list
// was empty, at most once per JournalTuning::gather_ms. It also takes the core's checkpoints, one per file or part in memory. The writing
// thread takes the whole list, makes a frame of the calls and writes the frame. No lock is held meanwhile, so the core's thread never waits
// for the disk.
#include "engine/journal/journal_writer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <random>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "core/journal/journal_format.h"
#include "core/kv/hash/hash_function.h"
#include "quire/base/version.h"

namespace quire {
namespace {

constexpr std::uint64_t kSmallestBudget = std::uint64_t{64} << 10U;

// Maximum number of waiting saves.
constexpr std::size_t kMaxSaves = 8;

Result<void> check_budget(const char* field, std::uint64_t bytes) {
  if (bytes >= kSmallestBudget) return {};
  return fail(ErrorCode::invalid_argument, field, fmt::format("is {}", bytes), fmt::format("use at least {}", kSmallestBudget));
}

Result<void> check(const JournalOptions& options) {
  if (options.folder.empty() && options.memory_bytes == 0)
    return fail(ErrorCode::invalid_argument, "journal", "is on, but neither a folder nor memory is set",
                "set --journal DIR or --journal-memory SIZE");
  if (Result<void> valid = check_budget("journal_max_bytes", options.max_bytes); !valid && !options.folder.empty()) return valid;
  if (Result<void> valid = check_budget("journal_memory", options.memory_bytes); !valid && options.memory_bytes > 0) return valid;
  std::error_code error;
  if (!options.save_folder.empty()) std::filesystem::create_directories(options.save_folder, error);
  if (!error) return {};
  return fail(ErrorCode::invalid_argument, "journal_save", fmt::format("'{}' cannot be written: {}", options.save_folder, error.message()),
              "use a folder that you own");
}

// Returns a key that differs in each run, so that the replaced hashes in the journals of two runs cannot be compared.
PseudonymKey random_key(HashAlgorithm algorithm) {
  std::random_device device;
  const auto word = [&device] { return std::uint64_t{device()} << 32U | device(); };
  return {.words = {word(), word()}, .hash_bytes = static_cast<std::uint32_t>(hash_size(algorithm))};
}

CoreSeams with_hash(CoreSeams seams, HashFunction* hash) {
  if (hash != nullptr) seams.hash = hash;
  return seams;
}

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
                                                             const CoreSeams& seams, const JournalTuning& tuning) {
  if (Result<void> valid = check(options); !valid) return std::unexpected(std::move(valid.error()));
  JournalHeader header{
      .quire_version = std::string(kVersion), .decision_profile = std::string(kDecisionProfile), .start_time_s = now_s(), .config = config};
  std::unique_ptr<HashFunction> default_hash;
  std::optional<PseudonymKey> leave_out;
  const PrefixCacheOptions& names = config.prefix_cache;
  if (!options.tokens) leave_out = random_key(names.hash);
  if (!options.tokens && seams.hash == nullptr) {
    auto made = make_hash_function({.algorithm = names.hash, .seed = names.hash_seed, .root = names.root_hash});
    if (!made) return std::unexpected(std::move(made.error()));
    default_hash = std::move(*made);
  }
  auto journal =
      std::unique_ptr<JournalWriter>(new JournalWriter(options, std::move(header), seams, std::move(default_hash), leave_out, tuning));
  if (!options.folder.empty()) {
    auto file = JournalFile::create(options.folder, options.max_bytes);
    if (!file) return std::unexpected(std::move(file.error()));
    journal->path_ = file->path();
    if (file->append(journal_header_frame(journal->header_))) {
      return fail(ErrorCode::invalid_argument, "journal", fmt::format("'{}' cannot be written", journal->path_),
                  "use a folder on a disk with free space");
    }
    journal->num_bytes_ = file->size();
    journal->file_.emplace(std::move(*file));
  }
  journal->thread_ = std::thread([&writer = *journal] { writer.run(); });
  return journal;
}

void JournalWriter::PendingCalls::clear() {
  calls.clear();
  cuts.clear();
  saves.clear();
  state_bytes = 0;
}

JournalWriter::JournalWriter(const JournalOptions& options, JournalHeader header, const CoreSeams& seams,
                             std::unique_ptr<HashFunction> default_hash, const std::optional<PseudonymKey>& leave_out,
                             const JournalTuning& tuning)
    : tuning_(tuning),
      options_(options),
      default_hash_(std::move(default_hash)),
      recorder_(
          with_hash(seams, default_hash_.get()), [this](std::span<const std::uint8_t> call) { put(call); }, leave_out),
      header_(std::move(header)),
      run_start_s_(header_.start_time_s),
      file_share_(calls_per_checkpoint(options.max_bytes, 0)) {
  calls_left_ = calls_until_next(0);
  header_.seams = recorder_.which();
  if (options_.memory_bytes > 0) ring_.emplace(options_.memory_bytes);
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
  const JournalEnd end = end_.load(std::memory_order_acquire);
  return end == JournalEnd::cut ? std::nullopt : std::optional(end);
}

std::string JournalWriter::path() const {
  const std::lock_guard lock(mutex_);
  return path_;
}

std::uint64_t JournalWriter::calls_until_next(std::uint64_t checkpoint_bytes) const {
  if (tuning_.calls_per_checkpoint != 0) return tuning_.calls_per_checkpoint;
  const bool is_filed = !options_.folder.empty() && !end();
  const std::uint64_t of_files = is_filed ? calls_per_checkpoint(options_.max_bytes, checkpoint_bytes) : UINT64_MAX;
  return options_.memory_bytes > 0 ? std::min(of_files, calls_per_checkpoint(options_.memory_bytes, checkpoint_bytes)) : of_files;
}

void JournalWriter::put(std::span<const std::uint8_t> call) {
  if (options_.memory_bytes == 0 && end()) return;
  calls_left_ -= std::min<std::uint64_t>(calls_left_, call.size());
  bool was_empty = false;
  {
    const std::lock_guard lock(mutex_);
    too_slow_ = too_slow_ || waiting_.calls.size() + call.size() > tuning_.max_waiting_bytes;
    if (too_slow_) {
      calls_left_ = 0;  // the ring in memory restarts at the next checkpoint, which is therefore due now
      return;
    }
    was_empty = waiting_.calls.empty();
    if (waiting_.progress.num_steps == 0) first_plan_s_ = recorder_.progress().now_s;
    waiting_.progress = recorder_.progress();
    waiting_.calls.insert(waiting_.calls.end(), call.begin(), call.end());
  }
  if (was_empty) wake_.notify_one();
  if (calls_left_ == 0 && recorder_.can_checkpoint()) put_state();
}

void JournalWriter::put_state() {
  CheckpointCut cut{.progress = recorder_.progress(), .state = recorder_.checkpoint()};
  calls_left_ = calls_until_next(cut.state.size());
  const std::lock_guard lock(mutex_);
  const std::uint64_t state_bytes = waiting_.state_bytes + cut.state.size();
  if (!waiting_.cuts.empty() && state_bytes > tuning_.max_waiting_bytes) return;
  waiting_.state_bytes = state_bytes;
  cut.at = waiting_.calls.size();
  waiting_.cuts.push_back(std::move(cut));
}

void JournalWriter::flush() {
  std::unique_lock lock(mutex_);
  flushing_ = true;
  wake_.notify_one();
  idle_.wait(lock, [this] { return (waiting_.calls.empty() && !writing_) || (options_.memory_bytes == 0 && end().has_value()); });
  flushing_ = false;
}

void JournalWriter::save(JournalSaveCallback answer) {
  if (options_.memory_bytes == 0) {
    return answer(fail(ErrorCode::unsupported, "journal_memory", "is 0, so no journal is kept in memory",
                       "start the server with --journal-memory 32MiB"));
  }
  if (options_.folder.empty() && options_.save_folder.empty()) {
    return answer(fail(ErrorCode::unsupported, "journal_save", "no folder is set to save journals in",
                       "start the server with --journal-save DIR or --journal DIR"));
  }
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.saves.size() < kMaxSaves) {
      waiting_.saves.push_back(std::move(answer));
      answer = nullptr;
    }
  }
  if (answer)
    return answer(fail(ErrorCode::overloaded, "", fmt::format("{} journals are being saved already", kMaxSaves), "try again later"));
  wake_.notify_one();
}

void JournalWriter::run() {
  PendingCalls pending;
  bool is_last = false;
  while (!is_last && (ring_ || !end())) {
    bool is_too_slow = false;
    {
      std::unique_lock lock(mutex_);
      const auto is_urgent = [this] { return stopping_ || flushing_ || !waiting_.saves.empty(); };
      wake_.wait(lock, [this] { return stopping_ || !waiting_.calls.empty() || !waiting_.saves.empty(); });
      wake_.wait_for(lock, std::chrono::milliseconds(tuning_.gather_ms), is_urgent);
      pending.clear();
      std::swap(pending, waiting_);
      waiting_.progress = pending.progress;
      is_too_slow = std::exchange(too_slow_, false);
      is_last = stopping_;
      writing_ = true;
    }
    write(pending, is_too_slow);
    for (const JournalSaveCallback& answer : pending.saves) answer(save_ring(pending.progress));
    {
      const std::lock_guard lock(mutex_);
      writing_ = false;
    }
    idle_.notify_all();
  }
  if (file_ && !end()) finish(JournalEnd::stopped);
}

void JournalWriter::write(PendingCalls& pending, bool is_too_slow) {
  const std::span<const std::uint8_t> calls = pending.calls;
  std::size_t done = 0;
  for (CheckpointCut& cut : pending.cuts) {
    append(calls.subspan(done, cut.at - done));
    done = cut.at;
    begin_part(cut);
  }
  append(calls.subspan(done));
  if (is_too_slow && file_ && !end()) finish(JournalEnd::too_slow);
  if (is_too_slow && ring_) ring_->lose();
  if (file_) num_bytes_.store(file_->total_size(), std::memory_order_relaxed);
  if (ring_) memory_bytes_.store(ring_->num_bytes(), std::memory_order_relaxed);
}

void JournalWriter::append(std::span<const std::uint8_t> calls) {
  if (calls.empty()) return;
  if (ring_) ring_->append(calls);
  if (!file_ || end()) return;
  frame_.clear();
  append_frame(frame_, file_->size(), FrameKind::calls, calls);
  file_calls_ += calls.size();
  if (const std::optional<JournalEnd> end = file_->append(frame_)) finish(*end);
}

// Begins a part in memory, and a new file if the current file is full. The current file continues if there is no room for another file, or
// if the checkpoint is too large for a frame.
void JournalWriter::begin_part(CheckpointCut& cut) {
  std::vector<std::uint8_t> checkpoint =
      journal_checkpoint({.run_start_s = run_start_s_, .number = ++num_states_, .progress = cut.progress, .state = cut.state});
  if (checkpoint.size() > kMaxPayloadBytes) {
    if (ring_) ring_->lose();
    return;
  }
  const bool is_full = file_calls_ >= file_share_ || tuning_.calls_per_checkpoint != 0;
  if (file_ && !end() && is_full) {
    header_.start_time_s = now_s();
    frame_ = journal_header_frame(header_);
    append_frame(frame_, frame_.size(), FrameKind::checkpoint, checkpoint);
    file_calls_ = 0;
    file_share_ = calls_per_checkpoint(options_.max_bytes, cut.state.size());
    if (file_->begin_next(frame_)) {
      const std::lock_guard lock(mutex_);
      path_ = file_->path();
    }
  }
  cut.state = {};
  if (ring_) ring_->begin(cut.progress, std::move(checkpoint));
}

Result<SavedJournal> JournalWriter::save_ring(const JournalProgress& until) {
  QUIRE_CHECK(ring_.has_value(), "a journal is kept in memory when one is saved");
  if (ring_->empty()) {
    return fail(ErrorCode::overloaded, "journal_memory",
                "the journal in memory is empty: the scheduler state does not fit, or calls came faster than they could be recorded",
                "try again later, or start the server with a larger --journal-memory");
  }
  auto file = JournalFile::create_saved(options_.save_folder.empty() ? options_.folder : options_.save_folder);
  if (!file) return std::unexpected(std::move(file.error()));
  JournalHeader header = header_;
  header.start_time_s = run_start_s_;
  bool is_good = !file->append(journal_header_frame(header));
  ring_->visit([&](FrameKind kind, std::span<const std::uint8_t> payload) {
    frame_.clear();
    append_frame(frame_, file->size(), kind, payload);
    is_good = is_good && !file->append(frame_);
  });
  if (!is_good) {
    (void)::unlink(file->path().c_str());
    return fail(ErrorCode::io, "journal", fmt::format("'{}' cannot be written: the disk is full or has failed", file->path()),
                "free space on the disk");
  }
  file->finish(JournalEnd::saved);
  const JournalProgress& first = ring_->first();
  double first_s = first.now_s;
  if (first.num_steps == 0) {
    const std::lock_guard lock(mutex_);
    first_s = first_plan_s_;
  }
  return SavedJournal{.path = file->path(),
                      .num_bytes = file->size(),
                      .num_steps = until.num_steps - first.num_steps,
                      .covered_s = until.num_steps > first.num_steps ? until.now_s - first_s : 0.0};
}

void JournalWriter::finish(JournalEnd end) {
  QUIRE_CHECK(file_.has_value(), "a journal file is open when it is finished");
  file_->finish(end);
  num_bytes_.store(file_->total_size(), std::memory_order_relaxed);
  // Set last, so that a thread that sees the end also sees the complete file and its size.
  end_.store(end, std::memory_order_release);
}

}  // namespace quire
