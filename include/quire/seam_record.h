#pragma once
// What the seams of a core answered, as values that can be written down: one recorder for all of them, and a player that answers in their
// place. A core that is given the same calls and the recorded answers makes the same plans, wherever it runs.
//
//   SeamRecorder recorder(seams);  Core::create(config, recorder.seams());  ...  encode(recorder.take())
//   SeamPlayer player(*decode_seam_record(bytes));  Core::create(config, player.seams());  ...  player.status()
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "quire/base/api.h"
#include "quire/base/error.h"
#include "quire/base/ids.h"
#include "quire/core.h"

namespace quire {

// Calls that answer; the others only tell.
enum class SeamCall : std::uint8_t {
  connector_match = 1,
  connector_finished,
  connector_plan_transfers,
  connector_order_failed,
  connector_reset,
  encoder_has,
  grammar_ready,
  grammar_should_advance,
  grammar_accept,
  grammar_count_valid,
  tool_of,
  hash,
  grammar_fork,
  grammar_failed  // noted where it did; no answer is none that failed
};

struct SeamAnswer {
  SeamCall call{};
  RequestId request{};                // whom it is about; 0 where it is about none
  std::uint64_t question = 0;         // a digest of what was asked; of a request its state and counts, not its tokens
  std::vector<std::uint64_t> values;  // the answer: numbers, ids, flags, in the order of the seam's fields
  std::string bytes;                  // a name

  friend bool operator==(const SeamAnswer&, const SeamAnswer&) = default;
};

struct SeamRecord {
  bool has_connector = false, has_encoder_connector = false, has_grammar = false, has_tools = false, has_hash = false;
  // Questions are digested without the tokens in them, and names of blocks are others (NameKey): a player may be asked with others.
  bool leaves_tokens_out = false;
  std::vector<SeamAnswer> answers;  // in the order in which they were given

  friend bool operator==(const SeamRecord&, const SeamRecord&) = default;
};

// Compact, with a version.
QUIRE_API std::vector<std::uint8_t> encode(const SeamRecord& record);
// Errors: `invalid_argument`, and the byte at which it is no record. Takes memory in proportion to the bytes, whatever they say.
QUIRE_API Result<SeamRecord> decode_seam_record(std::span<const std::uint8_t> bytes);

// Stands before the seams of a core; both must outlive it. Belongs to the core's thread.
class QUIRE_API SeamRecorder {
 public:
  explicit SeamRecorder(const CoreSeams& seams);
  ~SeamRecorder();
  SeamRecorder(const SeamRecorder&) = delete;
  SeamRecorder& operator=(const SeamRecorder&) = delete;

  // For Core::create. Events and calls go on to their sinks, unrecorded.
  [[nodiscard]] CoreSeams seams() const;
  // What was answered since the last call.
  [[nodiscard]] SeamRecord take();

 private:
  struct QUIRE_HIDDEN Impl;
  std::unique_ptr<Impl> impl_;
};

// Stands in place of the seams of a core, which it must outlive. Belongs to the core's thread. Checks that it is asked what the recorder
// was asked, not whether an answer makes sense: a record from elsewhere is as good as a connector from there.
class QUIRE_API SeamPlayer {
 public:
  explicit SeamPlayer(SeamRecord record, EventSink* events = nullptr);
  ~SeamPlayer();
  SeamPlayer(const SeamPlayer&) = delete;
  SeamPlayer& operator=(const SeamPlayer&) = delete;

  // For Core::create.
  [[nodiscard]] CoreSeams seams() const;
  // More of the record, behind what there is; what has been answered is forgotten.
  void give(std::vector<SeamAnswer>& answers);
  // To be looked at after each call of the core. An error: something else was asked than the record answers, or more; no answer has been
  // taken from it since, and what the core has decided since says nothing.
  [[nodiscard]] Result<void> status() const;
  [[nodiscard]] std::size_t num_left() const;

 private:
  struct QUIRE_HIDDEN Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
