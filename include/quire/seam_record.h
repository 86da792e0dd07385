#pragma once
// The answers of a core's seams, recorded as values. SeamRecorder wraps the seams and records their answers; SeamPlayer replaces them and
// returns the recorded answers. A core that receives the same calls and these answers makes the same plans on any machine.
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

// The seam calls that return an answer. All other seam calls only notify.
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
  grammar_failed  // recorded only if it failed; without a record the grammar has not failed
};

// One recorded answer of a seam.
struct SeamAnswer {
  SeamCall call{};
  RequestId request{};                // the request in question; 0: none
  std::uint64_t question = 0;         // digest of the question; for a request, of its state and counts, without tokens
  std::vector<std::uint64_t> values;  // the answer: numbers, ids, flags, in the order of the seam's fields
  std::string bytes;                  // a text answer: a tool or a block hash

  friend bool operator==(const SeamAnswer&, const SeamAnswer&) = default;
};

// All recorded answers of a core's seams, and which seams it had.
struct SeamRecord {
  bool has_connector = false, has_encoder_connector = false, has_grammar = false, has_tools = false, has_hash = false;
  // Digests of questions exclude tokens, and block hashes are replaced (PseudonymKey), so a player accepts questions with other tokens.
  bool omits_tokens = false;
  std::vector<SeamAnswer> answers;  // in the order in which they were given

  friend bool operator==(const SeamRecord&, const SeamRecord&) = default;
};

// Returns the record in a compact form with a version.
QUIRE_API std::vector<std::uint8_t> encode(const SeamRecord& record);
// Returns the record that `bytes` hold. Error: `invalid_argument`, with the first wrong byte. Memory use is proportional to the size of
// `bytes`, whatever they contain.
QUIRE_API Result<SeamRecord> decode_seam_record(std::span<const std::uint8_t> bytes);

// Wraps the seams of a core and records their answers. The seams and the recorder must outlive the core. Belongs to the core's thread.
class QUIRE_API SeamRecorder {
 public:
  explicit SeamRecorder(const CoreSeams& seams);
  ~SeamRecorder();
  SeamRecorder(const SeamRecorder&) = delete;
  SeamRecorder& operator=(const SeamRecorder&) = delete;

  // Returns the seams for Core::create. Events and calls are passed on to their sinks, unrecorded.
  [[nodiscard]] CoreSeams seams() const;
  // Returns the answers since the last take().
  [[nodiscard]] SeamRecord take();

 private:
  struct QUIRE_HIDDEN Impl;
  std::unique_ptr<Impl> impl_;
};

// Replaces the seams of a core by recorded answers, and must outlive the core. Belongs to the core's thread. It checks that questions equal
// the recorded ones, but not that answers make sense: trust a record like the connector that made it.
class QUIRE_API SeamPlayer {
 public:
  explicit SeamPlayer(SeamRecord record, EventSink* events = nullptr);
  ~SeamPlayer();
  SeamPlayer(const SeamPlayer&) = delete;
  SeamPlayer& operator=(const SeamPlayer&) = delete;

  // Returns the seams for Core::create.
  [[nodiscard]] CoreSeams seams() const;
  // Appends answers to the record. Answers that were used already are dropped.
  void give(std::vector<SeamAnswer>& answers);
  // Check this after each call of the core. Error: a question was not in the record, or the record was exhausted. From then on no recorded
  // answer is used, and the core's decisions are meaningless.
  [[nodiscard]] Result<void> status() const;
  [[nodiscard]] std::size_t num_left() const;

 private:
  struct QUIRE_HIDDEN Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
