#pragma once
// Writes calls to a file, on a thread of its own.
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "engine/journal/journal_file.h"
#include "quire/journal.h"

namespace quire {

struct JournalPace {
  // Calls that came within so long are one frame, and wake the thread once.
  std::uint32_t gather_ms = 20;
  // How much may wait for the disk before the journal ends.
  std::uint64_t max_waiting_bytes = std::uint64_t{64} << 20U;
};

class JournalWriter final : public CoreJournal {
 public:
  // As CoreJournal::create.
  static Result<std::unique_ptr<JournalWriter>> create(const JournalOptions& options, const CoreConfig& config, const CoreSeams& seams,
                                                       const JournalPace& pace = {});
  // Writes what came, and the end.
  ~JournalWriter() override;
  JournalWriter(const JournalWriter&) = delete;
  JournalWriter& operator=(const JournalWriter&) = delete;

  [[nodiscard]] CoreSeams seams() const override { return recorder_.seams(); }
  [[nodiscard]] const std::string& path() const override { return path_; }
  void flush() override;
  [[nodiscard]] std::uint64_t num_bytes() const override { return num_bytes_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::optional<JournalEnd> end() const override;

 private:
  JournalWriter(JournalFile file, const CoreSeams& seams, const JournalPace& pace);
  void put(std::span<const std::uint8_t> call);
  void run();
  // Whether it goes on.
  bool write(std::span<const std::uint8_t> calls, bool is_too_slow);
  void finish(JournalEnd end);

  const JournalPace pace_;
  JournalRecorder recorder_;
  const std::string path_;
  JournalFile file_;                 // the writing thread's
  std::vector<std::uint8_t> frame_;  // the same
  // Held for a moment only: for what follows, down to too_slow_.
  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::vector<std::uint8_t> waiting_;
  bool stopping_ = false, too_slow_ = false, flushing_ = false, writing_ = false;
  std::atomic<std::uint64_t> num_bytes_ = 0;
  std::atomic<JournalEnd> end_ = JournalEnd::cut;  // none yet
  std::thread thread_;                             // last: it uses all the others
};

}  // namespace quire
