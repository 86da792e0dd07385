#pragma once
// Writes recorded calls to files and to memory on a separate thread. The core's thread hands over calls and checkpoints and never waits for
// the disk. If the disk is too slow, the journal ends and records this. Any thread may call save(), path(), end(), num_bytes() and
// memory_bytes().
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

// Returns how many bytes of calls may follow a checkpoint before the next checkpoint: an eighth of the budget, or more if the checkpoint is
// large. The result lets two files with such a checkpoint fit into the budget.
constexpr std::uint64_t calls_per_checkpoint(std::uint64_t max_bytes, std::uint64_t checkpoint_bytes) {
  const std::uint64_t share = max_bytes / 8, half = max_bytes / 2;
  return std::max(share, std::min(2 * checkpoint_bytes, half - std::min(half, checkpoint_bytes)));
}

struct JournalTuning {
  // Calls within this time form one frame, and wake the writing thread only once.
  std::uint32_t gather_ms = 20;
  // Bytes of calls that may wait for the disk before the journal ends. The same limit applies to the bytes of checkpoints, except that a
  // single checkpoint may have any size.
  std::uint64_t max_waiting_bytes = std::uint64_t{64} << 20U;
  // Bytes of calls between two checkpoints of the core; 0: computed from the budget (calls_per_checkpoint()).
  std::uint64_t calls_per_checkpoint = 0;
};

class JournalWriter final : public CoreJournal {
 public:
  // Creates a journal as CoreJournal::create() does.
  static Result<std::unique_ptr<JournalWriter>> create(const JournalOptions& options, const CoreConfig& config, const CoreSeams& seams,
                                                       const JournalTuning& tuning = {});
  // Writes the waiting calls and the last frame.
  ~JournalWriter() override;
  JournalWriter(const JournalWriter&) = delete;
  JournalWriter& operator=(const JournalWriter&) = delete;

  [[nodiscard]] CoreSeams seams() const override { return recorder_.seams(); }
  [[nodiscard]] std::string path() const override;
  void flush() override;
  [[nodiscard]] std::uint64_t num_bytes() const override { return num_bytes_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::optional<JournalEnd> end() const override;
  void save(JournalSaveCallback answer) override;
  [[nodiscard]] std::uint64_t memory_bytes() const override { return memory_bytes_.load(std::memory_order_relaxed); }

 private:
  // A checkpoint of the core. `at`: number of bytes of waiting calls before it.
  struct CheckpointCut {
    std::size_t at = 0;
    JournalProgress progress;
    std::vector<std::uint8_t> state;
  };
  struct PendingCalls {
    std::vector<std::uint8_t> calls;
    std::vector<CheckpointCut> cuts;
    std::uint64_t state_bytes = 0;  // total size of the checkpoints
    JournalProgress progress;       // the core's progress after all waiting calls
    std::vector<JournalSaveCallback> saves;

    void clear();
  };

  JournalWriter(const JournalOptions& options, JournalHeader header, const CoreSeams& seams, std::unique_ptr<HashFunction> default_hash,
                const std::optional<PseudonymKey>& leave_out, const JournalTuning& tuning);
  void put(std::span<const std::uint8_t> call);
  void put_state();
  [[nodiscard]] std::uint64_t calls_until_next(std::uint64_t checkpoint_bytes) const;
  void run();
  void write(PendingCalls& pending, bool is_too_slow);
  void append(std::span<const std::uint8_t> calls);
  void begin_part(CheckpointCut& cut);
  Result<SavedJournal> save_ring(const JournalProgress& until);
  void finish(JournalEnd end);

  const JournalTuning tuning_;
  const JournalOptions options_;
  const std::unique_ptr<HashFunction> default_hash_;  // the core's hash function, if its answers must be recorded; else null
  JournalRecorder recorder_;
  std::uint64_t calls_left_ = 0;  // bytes of calls until the next checkpoint; used by the core's thread
  // Used by the writing thread, down to frame_.
  JournalHeader header_;
  const double run_start_s_;
  std::optional<JournalFile> file_;  // nullopt: the journal is only in memory
  std::optional<JournalRing> ring_;
  std::uint64_t num_states_ = 0;
  std::uint64_t file_calls_ = 0, file_share_ = 0;  // bytes of calls in this file, and the number of bytes at which the next file starts
  std::vector<std::uint8_t> frame_;
  // Guards the members from here to writing_. Held only briefly.
  mutable std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::string path_;
  PendingCalls waiting_;
  double first_plan_s_ = 0.0;
  bool stopping_ = false, too_slow_ = false, flushing_ = false, writing_ = false;
  std::atomic<std::uint64_t> num_bytes_ = 0, memory_bytes_ = 0;
  std::atomic<JournalEnd> end_ = JournalEnd::cut;  // cut: the journal has not ended
  std::thread thread_;                             // declared last because it uses all other members
};

}  // namespace quire
