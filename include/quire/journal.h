#pragma once
// A journal: all that a core's decisions depend on (its configuration, its calls, what its seams answered), and a digest of each decision,
// in a file (docs/journal.md). And a run of the core again from it, compared decision by decision.
//
//   auto journal = CoreJournal::create({.folder = "/var/tmp/journals"}, config, seams).value();
//   auto core = Core::create(config, journal->seams()).value();  ...  // an engine keeps its own (EngineOptions::journal)
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
#include "quire/hash_function.h"
#include "quire/saved_journal.h"
#include "quire/seam_record.h"

namespace quire {

// Which decisions the core's default mode makes; a journal of another one is not replayed.
inline constexpr std::string_view kDecisionProfile = "vLLM 0.19.0";

// Why a journal has no more calls.
enum class JournalEnd : std::uint8_t {
  cut,        // nothing says: whoever wrote it was killed, or writes still
  stopped,    // whoever wrote it has stopped
  budget,     // it has reached JournalOptions::max_bytes
  disk,       // the disk is full, or failed
  too_slow,   // the disk was so far behind that what waited for it filled its memory
  continued,  // the next file of this run goes on
  saved       // it is what was kept in memory up to then
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

struct JournalHeader {
  std::string quire_version, decision_profile;
  double start_time_s = 0.0;  // since 1970
  CoreConfig config{};
  SeamRecord seams{};  // which there were; without answers
};

// How far a core was.
struct JournalProgress {
  std::uint64_t num_calls = 0, num_steps = 0;  // since it was made
  double now_s = 0.0;                          // StepInput::now of its last plan

  friend bool operator==(const JournalProgress&, const JournalProgress&) = default;
};

// The state of a core between two calls: a file begins with it that does not begin with the core.
struct JournalCheckpoint {
  double run_start_s = 0.0;  // JournalHeader::start_time_s of the first file of this run
  std::uint64_t number = 0;  // of the states taken in this run, from 1 on
  JournalProgress progress{};
  std::span<const std::uint8_t> state{};  // Core::checkpoint()
};

// Stands before the seams of a core; both must outlive it. Belongs to the core's thread.
class QUIRE_API JournalRecorder {
 public:
  // Gets each call with all that was answered when it is over: the bytes are valid until it returns. They follow each other in a frame.
  using Take = std::function<void(std::span<const std::uint8_t> call)>;
  // With a key tokens are left out, and blocks have other names under it. `seams` then have a hash, since the core's own names could not be
  // made again.
  JournalRecorder(const CoreSeams& seams, Take take, const std::optional<NameKey>& leave_out = {});
  ~JournalRecorder();
  JournalRecorder(const JournalRecorder&) = delete;
  JournalRecorder& operator=(const JournalRecorder&) = delete;

  // For Core::create; its CoreSeams::calls is the recorder.
  [[nodiscard]] CoreSeams seams() const;
  [[nodiscard]] SeamRecord which() const;

  // All that follow for Take, of the core with the call that is over.
  // Whether the state may be taken now: behind apply(), or while no plan is out, so that no worker waits for it. Never before a core is
  // made with seams().
  [[nodiscard]] bool can_checkpoint() const;
  [[nodiscard]] std::vector<std::uint8_t> checkpoint() const;
  [[nodiscard]] const JournalProgress& progress() const;

 private:
  struct QUIRE_HIDDEN Impl;
  std::unique_ptr<Impl> impl_;
};

// Writes one to files, and keeps the last minutes in memory. Calls of the core's thread, but for save(); it never waits for the disk: a
// thread of the journal's own writes. A file that has its share of the budget ends, and the next one begins with the state of the core; the
// oldest files go. Nothing is left out of files: where the disk is full, fails or is too far behind, or the budget has no room for the
// state of the core, they end, and the last one says so. What is kept in memory begins anew where it would have a hole.
class QUIRE_API CoreJournal {
 public:
  virtual ~CoreJournal() = default;
  // `seams` must outlive it, and it the core. Errors: `journal` (the folder cannot be written to, or nothing is asked for),
  // `journal_max_bytes`, `journal_memory`, `journal_save`.
  static Result<std::unique_ptr<CoreJournal>> create(const JournalOptions& options, const CoreConfig& config, const CoreSeams& seams);

  // For Core::create.
  [[nodiscard]] virtual CoreSeams seams() const = 0;
  // The file that is written now; empty: none.
  [[nodiscard]] virtual std::string path() const = 0;
  // Waits for the disk: what was told is written, or the files have ended, when this returns. For a process that destroys nothing.
  virtual void flush() = 0;
  // Written to files so far, and why no more will be.
  [[nodiscard]] virtual std::uint64_t num_bytes() const = 0;
  [[nodiscard]] virtual std::optional<JournalEnd> end() const = 0;

  // On any thread. Writes what is kept in memory, up to the last call before this, to a file of its own, and answers on the journal's
  // thread; what it refuses at once, on the caller's. Errors: `unsupported` (JournalOptions::memory_bytes is 0, or there is no folder),
  // `overloaded` (others wait, or nothing is kept at the moment), `io` (the file cannot be written).
  virtual void save(JournalSaveAnswer answer) = 0;
  [[nodiscard]] virtual std::uint64_t memory_bytes() const = 0;
};

// What a core answered to a call: a digest of the plan or of the outcome, or a number.
struct JournalAnswer {
  enum class Kind : std::uint8_t { planned, applied, refused, answered };
  Kind kind{};
  std::uint64_t value = 0;

  friend bool operator==(const JournalAnswer&, const JournalAnswer&) = default;
};

// Reads a journal, call by call. What it gives is valid until the next next().
class QUIRE_API JournalReader {
 public:
  // The bytes outlive it, and may be anything: it takes memory in proportion to them, whatever they say. Errors: `journal`, they are none,
  // or of another version, or the header is damaged.
  static Result<std::unique_ptr<JournalReader>> open(std::span<const std::uint8_t> bytes);
  ~JournalReader();
  JournalReader(const JournalReader&) = delete;
  JournalReader& operator=(const JournalReader&) = delete;

  [[nodiscard]] const JournalHeader& header() const;
  // What the first call is made on; null: a core that has just been made. Its state is not looked at: Core::restore() does.
  [[nodiscard]] const JournalCheckpoint* start() const;
  // False: there is none left, or no good one.
  bool next();
  // Whether the call is schedule().
  [[nodiscard]] bool is_schedule() const;
  // The call: told to a sink (its arguments alone), or made (see CoreCallReader::play).
  void tell(CallSink& sink) const;
  const StepPlan* play(Core& core) const;
  // The state of the core before the call, where it is written there; null: it is not.
  [[nodiscard]] const JournalCheckpoint* checkpoint() const;
  // What seams answered in it; to be taken.
  [[nodiscard]] std::vector<SeamAnswer>& answers();
  [[nodiscard]] JournalAnswer answer() const;

  // Behind the last frame that was read.
  [[nodiscard]] std::size_t position() const;
  // After the last next().
  [[nodiscard]] JournalEnd end() const;
  // What is wrong behind what was read, and at which byte; empty: nothing.
  [[nodiscard]] const std::string& damage() const;

 private:
  struct QUIRE_HIDDEN Impl;
  explicit JournalReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

struct ReplayOptions {
  std::function<void(double done)> progress{};              // 0 to 1
  std::function<void(CoreConfig& config)> change_config{};  // to see what a change does first
  CallSink* also = nullptr;                                 // told of the core, of each call before it is made again, and of its answer
  // Of the file before: where this one goes on from it, its state must be the one that the replay of that one came to.
  const struct ReplayReport* before = nullptr;
};

// The first decision that was another one.
struct ReplayDifference {
  StepId step;             // of the last plan
  std::uint64_t call = 0;  // counted from 0
  std::string what;        // the call, and how its answer differs
  std::string state;       // of the core that was run again, thereafter: what was planned, queues, blocks
};

struct ReplayReport {
  JournalHeader header;
  std::uint64_t num_calls = 0;  // made again, and their answers compared
  std::uint64_t num_steps = 0, num_requests = 0, num_forks = 0, num_tokens = 0, num_preemptions = 0;
  double recorded_s = 0.0, replay_s = 0.0;  // from the first plan to the last by the engine's clock; and what replay() took
  JournalEnd end = JournalEnd::cut;
  std::string damage{};
  std::optional<ReplayDifference> difference{};  // it ends there
  std::optional<JournalCheckpoint> start{};      // what it began with, without the state
  std::uint64_t num_checkpoints = 0;             // states compared: within the file, and with the end of the file before
  // Where the next file goes on: how far the core is, and its state.
  JournalCheckpoint last{};
  std::vector<std::uint8_t> last_state{};
};

// Errors: `not_found`, a file that is no journal, `unsupported` (of another decision profile), `checkpoint` (what it begins with is no
// state of a core of its configuration).
QUIRE_API Result<ReplayReport> replay(const std::string& path, const ReplayOptions& options = {});

// The requests of a journal on a core of some configuration, one step after the other: each comes when it came and gets the tokens that it
// got, and the n-th step takes as long as the n-th did.
struct WhatIfRun {
  std::uint64_t num_steps = 0, num_preemptions = 0, num_refused = 0;  // refused: requests that this configuration does not take
  std::uint64_t num_prompt_tokens = 0, num_hit_tokens = 0;
  double mean_ttft_steps = 0.0;  // from the first plan after a request came
  double mean_ttft_s = 0.0, p50_ttft_s = 0.0, p90_ttft_s = 0.0;
  double end_s = 0.0;  // from the first arrival to the last token
};
struct WhatIf {
  std::uint64_t num_requests = 0;
  WhatIfRun before{}, after{};               // of the recorded configuration, and of the changed one
  std::optional<StepId> first_difference{};  // the first plan that is another one
};
// Errors: those of replay(); `unsupported`, a journal whose other answers nobody knows (connectors and tiers, grammars, sessions, forks,
// drafts, swap), that begins in the middle, or that cannot be replayed; a changed configuration that no core can have, or under which
// requests never run.
QUIRE_API Result<WhatIf> what_if(const std::string& path, const std::function<void(CoreConfig& config)>& change_config);

}  // namespace quire
