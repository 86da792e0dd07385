#pragma once
// Records the answers of a core's seams as values. SeamRecorder wraps the seams and records their answers. SeamPlayer replaces the seams
// and returns the recorded answers. A core that receives the same calls and these answers makes the same plans on any machine.
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
  RequestId request{};                // request that the question is about; 0: no request
  std::uint64_t question = 0;         // digest of the question; a request counts with its state and its counts, without its tokens
  std::vector<std::uint64_t> values;  // the answer: numbers, ids, flags, in the order of the seam's fields
  std::string bytes;                  // the answer, if it is a tool's name or a block hash

  friend bool operator==(const SeamAnswer&, const SeamAnswer&) = default;
};

// All recorded answers of a core's seams, and which seams it had.
struct SeamRecord {
  bool has_connector = false, has_encoder_connector = false, has_grammar = false, has_tools = false, has_hash = false;
  // Digests of questions exclude tokens, and block hashes are replaced (PseudonymKey). A player therefore also accepts questions with other
  // tokens.
  bool omits_tokens = false;
  std::vector<SeamAnswer> answers;  // in the order in which they were given

  friend bool operator==(const SeamRecord&, const SeamRecord&) = default;
};

// Returns the record as bytes, in a compact form with a version.
QUIRE_API std::vector<std::uint8_t> encode(const SeamRecord& record);
// Returns the record that `bytes` encode. Error: `invalid_argument`, with the position of the first wrong byte. `bytes` may be arbitrary:
// memory use is proportional to their size.
QUIRE_API Result<SeamRecord> decode_seam_record(std::span<const std::uint8_t> bytes);

// Wraps the seams of a core and records their answers. The seams and the recorder must outlive the core. Belongs to the core's thread.
class QUIRE_API SeamRecorder {
 public:
  explicit SeamRecorder(const CoreSeams& seams);
  ~SeamRecorder();
  SeamRecorder(const SeamRecorder&) = delete;
  SeamRecorder& operator=(const SeamRecorder&) = delete;

  // Returns the seams for Core::create. Events and calls go to their original sinks and are not recorded.
  [[nodiscard]] CoreSeams seams() const;
  // Returns the answers since the last take().
  [[nodiscard]] SeamRecord take();

 private:
  struct QUIRE_HIDDEN Impl;
  std::unique_ptr<Impl> impl_;
};

// Replaces the seams of a core by recorded answers. Must outlive the core. Belongs to the core's thread. The player checks that each
// question equals the recorded one. It does not check the answers, so a record must be as trusted as the connector that gave them.
class QUIRE_API SeamPlayer {
 public:
  explicit SeamPlayer(SeamRecord record, EventSink* events = nullptr);
  ~SeamPlayer();
  SeamPlayer(const SeamPlayer&) = delete;
  SeamPlayer& operator=(const SeamPlayer&) = delete;

  // Returns the seams for Core::create.
  [[nodiscard]] CoreSeams seams() const;
  // Appends answers to the record, and drops the answers that were used already.
  void give(std::vector<SeamAnswer>& answers);
  // Returns an error if a question was not in the record, or if the record was exhausted. From then on the player uses no recorded answer,
  // and the core's decisions are meaningless. Call status() after each call of the core.
  [[nodiscard]] Result<void> status() const;
  [[nodiscard]] std::size_t num_left() const;

 private:
  struct QUIRE_HIDDEN Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
