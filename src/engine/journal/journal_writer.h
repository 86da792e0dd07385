#pragma once
// Writes calls to files and to memory, on a thread of its own.
// The core's thread hands over calls and states, and never waits for the disk: where that is too slow the journal ends and says so. Members
// of CoreJournal that look at it, and save(), are called from any thread.
#include <algorithm>
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
#include "engine/journal/journal_ring.h"
#include "quire/hash_function.h"
#include "quire/journal.h"

namespace quire {

// How many bytes of calls follow a state of the core in a budget: an eighth of it, more where the state itself is large, and no more than
// what lets two files with such a state be there.
constexpr std::uint64_t calls_per_checkpoint(std::uint64_t max_bytes, std::uint64_t checkpoint_bytes) {
  const std::uint64_t share = max_bytes / 8, half = max_bytes / 2;
  return std::max(share, std::min(2 * checkpoint_bytes, half - std::min(half, checkpoint_bytes)));
}

struct JournalPace {
  // Calls that came within so long are one frame, and wake the thread once.
  std::uint32_t gather_ms = 20;
  // How many calls may wait for the disk before the journal ends; and states of the core beside them, but for a single one of any size.
  std::uint64_t max_waiting_bytes = std::uint64_t{64} << 20U;
  // Bytes of calls between two states of the core; 0: as the budget asks (calls_per_checkpoint()).
  std::uint64_t calls_per_checkpoint = 0;
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
  [[nodiscard]] std::string path() const override;
  void flush() override;
  [[nodiscard]] std::uint64_t num_bytes() const override { return num_bytes_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::optional<JournalEnd> end() const override;
  void save(JournalSaveAnswer answer) override;
  [[nodiscard]] std::uint64_t memory_bytes() const override { return memory_bytes_.load(std::memory_order_relaxed); }

 private:
  // The state of the core behind so many bytes of the calls that wait.
  struct Cut {
    std::size_t at = 0;
    JournalProgress progress;
    std::vector<std::uint8_t> state;
  };
  struct Told {
    std::vector<std::uint8_t> calls;
    std::vector<Cut> cuts;
    std::uint64_t state_bytes = 0;  // of all cuts
    JournalProgress progress;       // behind them
    std::vector<JournalSaveAnswer> saves;

    void clear();
  };

  JournalWriter(const JournalOptions& options, JournalHeader header, const CoreSeams& seams, std::unique_ptr<HashFunction> own_hash,
                const std::optional<NameKey>& leave_out, const JournalPace& pace);
  void put(std::span<const std::uint8_t> call);
  void put_state();
  [[nodiscard]] std::uint64_t calls_until_next(std::uint64_t checkpoint_bytes) const;
  void run();
  void write(Told& told, bool is_too_slow);
  void append(std::span<const std::uint8_t> calls);
  void begin_part(Cut& cut);
  Result<SavedJournal> save_ring(const JournalProgress& until);
  void finish(JournalEnd end);

  const JournalPace pace_;
  const JournalOptions options_;
  const std::unique_ptr<HashFunction> own_hash_;  // the core's, where it is to be recorded and nobody gave one; else null
  JournalRecorder recorder_;
  std::uint64_t calls_left_ = 0;  // the core's thread's: bytes until the state is taken
  // The writing thread's.
  JournalHeader header_;
  const double run_start_s_;
  std::optional<JournalFile> file_;  // none: only memory is asked for
  std::optional<JournalRing> ring_;
  std::uint64_t num_states_ = 0;
  std::uint64_t file_calls_ = 0, file_share_ = 0;  // bytes of calls in this file, and how many it is to have
  std::vector<std::uint8_t> frame_;
  // Held for a moment only: for what follows, down to too_slow_.
  mutable std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::string path_;
  Told waiting_;
  double first_plan_s_ = 0.0;
  bool stopping_ = false, too_slow_ = false, flushing_ = false, writing_ = false;
  std::atomic<std::uint64_t> num_bytes_ = 0, memory_bytes_ = 0;
  std::atomic<JournalEnd> end_ = JournalEnd::cut;  // none yet
  std::thread thread_;                             // last: it uses all the others
};

}  // namespace quire
