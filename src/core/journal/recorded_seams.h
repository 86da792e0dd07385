#pragma once
// Seams that pass each call to the real seams and record the answers.
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>

#include "core/journal/question.h"
#include "quire/core.h"
#include "quire/seam_record.h"

namespace quire {

class AnswerSink {
 public:
  // Receives an answer. The views are valid during the call.
  virtual void note(SeamCall call, RequestId request, const SeamQuestion& question, std::span<const std::uint64_t> values,
                    std::string_view bytes) = 0;

 protected:
  ~AnswerSink() = default;
};

// Wraps the seams of a core. The seams and the sink must outlive this object.
class RecordedSeams {
 public:
  // With `leave_out`, which must outlive this object, questions contain no tokens, and block hashes are replaced by pseudonyms
  // (left_out.h).
  RecordedSeams(const CoreSeams& given, AnswerSink& answers, const PseudonymKey* leave_out = nullptr);
  ~RecordedSeams();
  RecordedSeams(const RecordedSeams&) = delete;
  RecordedSeams& operator=(const RecordedSeams&) = delete;

  // Returns the recording seams. The event sink and the call sink are taken from the given seams.
  [[nodiscard]] CoreSeams seams() const;
  // Returns a record that says which seams exist, without answers.
  [[nodiscard]] SeamRecord which() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
