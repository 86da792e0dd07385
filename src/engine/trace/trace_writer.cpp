// Writes the trace's files. The engine thread takes a free step object, fills it and hands it over. The writing thread converts it to text
// and writes the text. No lock is held meanwhile, so the engine thread never waits for the disk. A file never contains a partial line. Only
// the owner can read a new file, because it contains parts of prompts.
#include "engine/trace/trace_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace quire {

TraceFile::TraceFile(TraceFile&& other) noexcept
    : path_(std::move(other.path_)),
      max_bytes_(other.max_bytes_),
      max_files_(other.max_files_),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_) {}

TraceFile::~TraceFile() {
  close();
}

void TraceFile::close() {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

Result<void> TraceFile::open() {
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);  // only the owner may read prompts
  const off_t end = descriptor_ >= 0 ? ::lseek(descriptor_, 0, SEEK_END) : -1;
  if (end < 0) {
    return fail(ErrorCode::invalid_argument, "trace", fmt::format("'{}' cannot be written: {}", path_, std::strerror(errno)),
                "use a path in an existing folder that you can write to");
  }
  size_ = static_cast<std::uint64_t>(end);
  return {};
}

// Renames the files, and removes the oldest one. A missing file is no error, because an earlier run may have written fewer files.
bool TraceFile::rotate() {
  close();
  for (std::uint32_t i = max_files_ - 1; i > 0; --i) {
    const std::string from = i == 1 ? path_ : fmt::format("{}.{}", path_, i - 1);
    std::rename(from.c_str(), fmt::format("{}.{}", path_, i).c_str());
  }
  if (max_files_ == 1) std::remove(path_.c_str());
  return open().has_value();
}

bool TraceFile::append(std::string_view text) {
  if (text.empty()) return true;
  if (descriptor_ < 0 || (size_ > 0 && size_ + text.size() > max_bytes_))
    if (!rotate()) return false;
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t count = ::write(descriptor_, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      if (::ftruncate(descriptor_, static_cast<off_t>(size_)) != 0) close();  // leaves no partial line
      return false;
    }
    done += static_cast<std::size_t>(count);
  }
  size_ += text.size();
  return true;
}

Result<TraceFiles> TraceFiles::open(const TraceOptions& options) {
  TraceFiles files{{options.path + ".steps.jsonl", options.max_file_bytes, options.max_files},
                   {options.path + ".requests.jsonl", options.max_file_bytes, options.max_files}};
  if (auto opened = files.steps.open(); !opened) return std::unexpected(opened.error());
  if (auto opened = files.requests.open(); !opened) return std::unexpected(opened.error());
  return files;
}

TraceWriter::TraceWriter(TraceFiles files, const TraceFacts& facts) : files_(std::move(files)), text_(facts) {
  blank_.reserve(kNumSteps);
  for (std::size_t i = 0; i < kNumSteps; ++i) blank_.push_back(std::make_unique<TraceStep>());
  thread_ = std::thread([this] { run(); });
}

TraceWriter::~TraceWriter() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

std::unique_ptr<TraceStep> TraceWriter::take_blank() {
  const std::lock_guard lock(mutex_);
  if (blank_.empty()) return nullptr;
  std::unique_ptr<TraceStep> step = std::move(blank_.back());
  blank_.pop_back();
  return step;
}

void TraceWriter::put(std::unique_ptr<TraceStep> step) {
  {
    const std::lock_guard lock(mutex_);
    QUIRE_CHECK(num_full_ < kNumSteps, "a step is put back only after it was taken");
    full_[(first_full_ + num_full_++) % kNumSteps] = std::move(step);
  }
  wake_.notify_one();
}

void TraceWriter::flush() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return num_full_ == 0 && !writing_; });
}

void TraceWriter::run() {
  std::string steps, requests;
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || num_full_ > 0; });
    if (num_full_ == 0) return;
    std::unique_ptr<TraceStep> step = std::move(full_[first_full_]);
    first_full_ = (first_full_ + 1) % kNumSteps;
    --num_full_;
    writing_ = true;
    lock.unlock();
    steps.clear();
    requests.clear();
    text_.append(*step, steps, requests);
    // Writes requests first, so that a program that follows the steps already finds the requests of each step.
    const bool written = files_.requests.append(requests) && files_.steps.append(steps);
    lock.lock();
    blank_.push_back(std::move(step));
    // Counted only after the step object is free again, so that a thread that waits for the count then gets a free object.
    (written ? num_written_ : num_failed_).fetch_add(1, std::memory_order_relaxed);
    writing_ = false;
    idle_.notify_all();
  }
}

}  // namespace quire
