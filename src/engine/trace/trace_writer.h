#pragma once
// Writes traced steps to two files on a separate thread, which shares a fixed number of step objects with the engine thread. If no object
// is free, the engine thread drops its step and continues.
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

// A growing file. If the next text does not fit, the file is renamed to PATH.1, PATH.1 to PATH.2, and so on.
class TraceFile {
 public:
  TraceFile(std::string path, std::uint64_t max_bytes, std::uint32_t max_files)
      : path_(std::move(path)), max_bytes_(max_bytes), max_files_(max_files) {}
  TraceFile(TraceFile&& other) noexcept;
  TraceFile& operator=(TraceFile&&) = delete;
  ~TraceFile();

  Result<void> open();
  // Appends either the whole text or nothing. Returns false if the disk is full or fails.
  bool append(std::string_view text);

 private:
  void close();
  bool rotate();

  std::string path_;
  // Maximum size of one file. A single text that is longer still goes into one file.
  std::uint64_t max_bytes_;
  // Number of files, including the growing one. With 1, the full file is deleted and a new file begins.
  std::uint32_t max_files_;
  // -1: closed; the next append() rotates the files and opens a new file.
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

struct TraceFiles {
  // Opens the files for appending. Errors name the option.
  static Result<TraceFiles> open(const TraceOptions& options);
  TraceFile steps, requests;
};

class TraceWriter {
 public:
  TraceWriter(TraceFiles files, const TraceFacts& facts);
  // Writes the remaining steps.
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  // Returns a free step object; null if all of them are waiting for the disk. Called on the engine thread.
  std::unique_ptr<TraceStep> take_blank();
  void put(std::unique_ptr<TraceStep> step);
  // Waits until all steps are written. No thread may call put() meanwhile.
  void flush();

  // May be called on any thread.
  [[nodiscard]] std::uint64_t num_written() const { return num_written_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t num_failed() const { return num_failed_.load(std::memory_order_relaxed); }

 private:
  // Number of step objects: steps that may wait for the disk before further steps are dropped. The objects are created at the start and
  // reused.
  static constexpr std::size_t kNumSteps = 16;
  void run();

  // Used by the writing thread from its start on.
  TraceFiles files_;
  TraceText text_;  // also used by the writing thread
  // Guards the members from here to writing_. Held only briefly.
  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::array<std::unique_ptr<TraceStep>, kNumSteps> full_;  // a ring buffer
  std::size_t first_full_ = 0, num_full_ = 0;
  std::vector<std::unique_ptr<TraceStep>> blank_;
  bool stopping_ = false, writing_ = false;
  std::atomic<std::uint64_t> num_written_ = 0, num_failed_ = 0;
  std::thread thread_;  // declared last because it uses all other members
};

}  // namespace quire
