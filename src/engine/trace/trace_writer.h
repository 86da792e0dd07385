#pragma once
// Writes traced steps to two files, on a thread of its own. Between it and the engine thread is a bounded number of steps: whoever finds
// none blank drops a step and goes on.
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/trace/trace_step.h"
#include "engine/trace/trace_text.h"
#include "quire/base/error.h"
#include "quire/base/options.h"

namespace quire {

// One growing file. When the next text does not fit any more it becomes PATH.1, PATH.1 becomes PATH.2, and so on.
class TraceFile {
 public:
  TraceFile(std::string path, std::uint64_t max_bytes, std::uint32_t max_files)
      : path_(std::move(path)), max_bytes_(max_bytes), max_files_(max_files) {}
  TraceFile(TraceFile&& other) noexcept;
  TraceFile& operator=(TraceFile&&) = delete;
  ~TraceFile();

  Result<void> open();
  // All of it, or nothing: false where the disk is full or fails.
  bool append(std::string_view text);

 private:
  void close();
  bool rotate();

  std::string path_;
  // Of one file, but for a text that alone is longer.
  std::uint64_t max_bytes_;
  // The one that grows among them; 1: it begins anew.
  std::uint32_t max_files_;
  // -1: closed; the next append() rotates and opens a new one.
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

struct TraceFiles {
  // Appends to what is there. Errors name the option.
  static Result<TraceFiles> open(const TraceOptions& options);
  TraceFile steps, requests;
};

class TraceWriter {
 public:
  TraceWriter(TraceFiles files, const TraceFacts& facts);
  // Writes what was put.
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  // The engine thread. Null: all are on their way to the disk.
  std::unique_ptr<TraceStep> take_blank();
  void put(std::unique_ptr<TraceStep> step);
  // Waits for what was put; nobody puts meanwhile.
  void flush();

  // Any thread.
  [[nodiscard]] std::uint64_t num_written() const { return num_written_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t num_failed() const { return num_failed_.load(std::memory_order_relaxed); }

 private:
  // How far the disk may be behind before steps are dropped. All are made at the start and used again.
  static constexpr std::size_t kNumSteps = 16;
  void run();

  // The writing thread's from its start on.
  TraceFiles files_;
  TraceText text_;  // the writing thread
  // Held for a moment only: for what follows, down to stopping_.
  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::array<std::unique_ptr<TraceStep>, kNumSteps> full_;  // a ring
  std::size_t first_full_ = 0, num_full_ = 0;
  std::vector<std::unique_ptr<TraceStep>> blank_;
  bool stopping_ = false, writing_ = false;
  std::atomic<std::uint64_t> num_written_ = 0, num_failed_ = 0;
  std::thread thread_;  // last: it uses all the others
};

}  // namespace quire
