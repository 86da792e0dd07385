#pragma once
// A journal file contains everything that a core's decisions depend on (its configuration, its calls, the answers of its seams) and a
// digest of each decision (docs/journal.md). replay() makes the same calls on a new core and compares each decision with its digest.
//
//   auto journal = CoreJournal::create({.folder = "/var/tmp/journals"}, config, seams).value();
//   auto core = Core::create(config, journal->seams()).value();  ...  // an engine has its own journal (EngineOptions::journal)
//   for each file of the run: ReplayReport report = replay(path).value();
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/api.h"
#include "quire/base/core_config.h"
#include "quire/base/error.h"
#include "quire/base/options.h"
#include "quire/core.h"
#include "quire/core_call.h"
#include "quire/hash_function.h"
#include "quire/saved_journal.h"
#include "quire/seam_record.h"

namespace quire {

// Identifies the decisions of the core's default mode. A journal with another profile cannot be replayed.
inline constexpr std::string_view kDecisionProfile = "vLLM 0.19.0";

// The reason why a journal file has no more calls.
enum class JournalEnd : std::uint8_t {
  cut,        // no end is recorded: the writer was killed, or is still writing
  stopped,    // the writer has stopped
  budget,     // `JournalOptions::max_bytes` is reached
  disk,       // the disk is full or failed
  too_slow,   // the disk was so slow that the memory for waiting calls was full
  continued,  // the next file of this run has the following calls
  saved       // the file was saved from memory; the run continued
};

constexpr std::string_view journal_end_name(JournalEnd end) {
  switch (end) {
    case JournalEnd::cut:
      return "cut";
    case JournalEnd::stopped:
      return "stopped";
    case JournalEnd::budget:
      return "budget";
    case JournalEnd::disk:
      return "disk";
    case JournalEnd::too_slow:
      return "too_slow";
    case JournalEnd::continued:
      return "continued";
    case JournalEnd::saved:
      return "saved";
  }
  return "cut";
}

// The data at the beginning of a journal file.
struct JournalHeader {
  std::string quire_version, decision_profile;
  double start_time_s = 0.0;  // seconds since 1970
  CoreConfig config{};
  SeamRecord seams{};  // which seams the core had; `answers` is empty
};

// How far a core has come.
struct JournalProgress {
  std::uint64_t num_calls = 0, num_steps = 0;  // since the core's creation
  double now_s = 0.0;                          // `StepInput::now` of the core's last plan

  friend bool operator==(const JournalProgress&, const JournalProgress&) = default;
};

// The state of a core between two calls. A file whose first call is not the first call of a new core starts with a checkpoint.
struct JournalCheckpoint {
  double run_start_s = 0.0;  // `JournalHeader::start_time_s` of the first file of this run
  std::uint64_t number = 0;  // number among the checkpoints of this run, starting with 1
  JournalProgress progress{};
  std::span<const std::uint8_t> state{};  // `Core::checkpoint()`
};

// Records a core's calls, the answers of its seams, and digests of its decisions. The seams and the recorder must outlive the core. Belongs
// to the core's thread.
class QUIRE_API JournalRecorder {
 public:
  // Receives each call, together with its answers, when the call is over. The bytes are valid until the function returns. A frame of the
  // journal is a concatenation of such calls.
  using Take = std::function<void(std::span<const std::uint8_t> call)>;
  // With `leave_out`, tokens are omitted and block hashes are replaced under this key. `seams` must then have a HashFunction, because a
  // replay without tokens cannot compute the core's own hashes.
  JournalRecorder(const CoreSeams& seams, Take take, const std::optional<PseudonymKey>& leave_out = {});
  ~JournalRecorder();
  JournalRecorder(const JournalRecorder&) = delete;
  JournalRecorder& operator=(const JournalRecorder&) = delete;

  // Returns the seams for Core::create. Their CoreSeams::calls is the recorder itself.
  [[nodiscard]] CoreSeams seams() const;
  [[nodiscard]] SeamRecord which() const;

  // The following methods may be called within Take. They describe the core after the call that Take has received.
  // Returns whether checkpoint() may be called now without delaying a worker: after apply(), or while no plan is outstanding. Returns false
  // until a core was created with seams().
  [[nodiscard]] bool can_checkpoint() const;
  [[nodiscard]] std::vector<std::uint8_t> checkpoint() const;
  [[nodiscard]] const JournalProgress& progress() const;

 private:
  struct QUIRE_HIDDEN Impl;
  std::unique_ptr<Impl> impl_;
};

// Writes a journal to files, and keeps the last minutes in memory. Called on the core's thread, except for save(). Never waits for the
// disk, because a separate thread writes. When a file has used its share of the budget, the next file begins with a checkpoint of the core,
// and the oldest files are deleted. A file has no gaps. If the disk is full, fails or is too slow, or if the budget has no room for a
// checkpoint, writing ends, and the last file states the reason. If the memory cannot hold the newest calls, it is cleared and starts again
// with the next checkpoint.
class QUIRE_API CoreJournal {
 public:
  virtual ~CoreJournal() = default;
  // Creates a journal. `seams` must outlive the journal, and the journal must outlive the core. Errors: `journal` (the folder cannot be
  // written, or neither folder nor memory is given), `journal_max_bytes`, `journal_memory`, `journal_save`.
  static Result<std::unique_ptr<CoreJournal>> create(const JournalOptions& options, const CoreConfig& config, const CoreSeams& seams);

  // Returns the seams for Core::create.
  [[nodiscard]] virtual CoreSeams seams() const = 0;
  // Returns the path of the file that is being written; empty: no file is being written.
  [[nodiscard]] virtual std::string path() const = 0;
  // Waits until all recorded calls are written, or writing has ended. Call it in a process that exits without destroying the journal.
  virtual void flush() = 0;
  // Return the number of bytes written to files, and the reason why writing has ended (nullopt: it has not ended).
  [[nodiscard]] virtual std::uint64_t num_bytes() const = 0;
  [[nodiscard]] virtual std::optional<JournalEnd> end() const = 0;

  // Writes the calls in memory, up to the last call before save(), to a separate file. Callable on any thread. `answer` is called on the
  // journal's thread, or on the caller's thread for an error that is found immediately. Errors: `unsupported` (JournalOptions::memory_bytes
  // is 0, or there is no folder), `overloaded` (too many saves are waiting, or the memory is empty now), `io` (the file cannot be written).
  virtual void save(JournalSaveCallback answer) = 0;
  [[nodiscard]] virtual std::uint64_t memory_bytes() const = 0;
};

// A core's answer to a call: a digest of the plan or of the outcome, or a number.
struct JournalAnswer {
  enum class Kind : std::uint8_t { planned, applied, refused, answered };
  Kind kind{};
  std::uint64_t value = 0;

  friend bool operator==(const JournalAnswer&, const JournalAnswer&) = default;
};

// Reads a journal call by call. Returned references and views are valid until the next call of next().
class QUIRE_API JournalReader {
 public:
  // Opens a journal. `bytes` must outlive the reader. They may be arbitrary: memory use is proportional to their size. Error `journal`: the
  // bytes are not a journal, are of another version, or have a damaged header or first checkpoint.
  static Result<std::unique_ptr<JournalReader>> open(std::span<const std::uint8_t> bytes);
  ~JournalReader();
  JournalReader(const JournalReader&) = delete;
  JournalReader& operator=(const JournalReader&) = delete;

  [[nodiscard]] const JournalHeader& header() const;
  // Returns the checkpoint before the first call; null: the file begins with a new core. Core::restore() validates the state; the reader
  // does not.
  [[nodiscard]] const JournalCheckpoint* start() const;
  // Reads the next call. Returns false at the end, or if the next call is damaged (see damage()).
  bool next();
  // Returns the call that was read, without data that the core only passes through (sampling parameters).
  [[nodiscard]] const CoreCall& call() const;
  // Makes the call that was read on a core, as CoreCallReader::play() does.
  const StepPlan* play(Core& core) const;
  // Returns the checkpoint that the file has before this call; null: the file has none here.
  [[nodiscard]] const JournalCheckpoint* checkpoint() const;
  // Returns the answers that the seams gave during this call. The caller may move them out.
  [[nodiscard]] std::vector<SeamAnswer>& answers();
  [[nodiscard]] JournalAnswer answer() const;

  // Returns the position in bytes after the last frame that was read.
  [[nodiscard]] std::size_t position() const;
  // Returns the reason why there are no more calls. Valid after next() has returned false.
  [[nodiscard]] JournalEnd end() const;
  // Returns the damage after the calls that were read, with its position in bytes; empty: no damage.
  [[nodiscard]] const std::string& damage() const;

 private:
  struct QUIRE_HIDDEN Impl;
  explicit JournalReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

struct ReplayOptions {
  std::function<void(double done)> progress{};              // called with values from 0 to 1
  std::function<void(CoreConfig& config)> change_config{};  // changes the recorded configuration, to see which decisions change first
  CallSink* also = nullptr;                                 // also receives the core, each call before it is made, and its answer
  // Report of the file before this one, or null. If this file continues that file, the checkpoint of this file must equal the state at the
  // end of the earlier replay.
  const struct ReplayReport* before = nullptr;
};

// The first decision that differs.
struct ReplayDifference {
  StepId step;             // step of the last plan
  std::uint64_t call = 0;  // index of the call, from 0
  std::string what;        // the call, and how its answer differs
  std::string state;       // the replaying core's plan, queues and blocks afterwards
};

struct ReplayReport {
  JournalHeader header;
  std::uint64_t num_calls = 0;  // calls that were replayed and compared
  std::uint64_t num_steps = 0, num_requests = 0, num_forks = 0, num_tokens = 0, num_preemptions = 0;
  double recorded_s = 0.0, replay_s = 0.0;  // engine time from the first plan to the last; duration of replay()
  JournalEnd end = JournalEnd::cut;
  std::string damage{};
  std::optional<ReplayDifference> difference{};  // the first decision that differs; the replay ends there
  std::optional<JournalCheckpoint> start{};      // checkpoint at the start of the replay, without the state; nullopt: none
  std::uint64_t num_checkpoints = 0;             // checkpoints that were compared: within the file, and with the end of the file before
  // Progress and state at the end, for the replay of the next file (ReplayOptions::before).
  JournalCheckpoint last{};
  std::vector<std::uint8_t> last_state{};
};

// Replays a journal file. Errors: `not_found`; the file is not a journal; `unsupported` (another decision profile); `checkpoint` (the first
// checkpoint is not a valid state for the recorded configuration).
QUIRE_API Result<ReplayReport> replay(const std::string& path, const ReplayOptions& options = {});

// The result of running a journal's requests on a core with some configuration, in sequential steps. Each request arrives at its recorded
// time and gets its recorded tokens. The n-th step takes as long as the n-th recorded step.
struct WhatIfRun {
  std::uint64_t num_steps = 0, num_preemptions = 0, num_refused = 0;  // refused: rejected by the core with this configuration
  std::uint64_t num_prompt_tokens = 0, num_hit_tokens = 0;
  double mean_ttft_steps = 0.0;  // from the first plan after the arrival
  double mean_ttft_s = 0.0, p50_ttft_s = 0.0, p90_ttft_s = 0.0;
  double end_s = 0.0;  // from the first arrival to the last token
};
// Two runs of the same requests, for comparison.
struct WhatIf {
  std::uint64_t num_requests = 0;
  WhatIfRun before{}, after{};               // with the recorded configuration, and with the changed one
  std::optional<StepId> first_difference{};  // the first plan that differs
};
// Runs the requests of a journal with the recorded configuration and with a changed one. Errors: the errors of replay(); `unsupported`: the
// journal depends on answers that change with the configuration (connectors and tiers, grammars, sessions, forks, draft tokens, swap),
// begins in the middle of a run, or cannot be replayed; the changed configuration is invalid, or some requests never run with it.
QUIRE_API Result<WhatIf> what_if(const std::string& path, const std::function<void(CoreConfig& config)>& change_config);

}  // namespace quire
