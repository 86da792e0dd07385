#pragma once
// Seams that pass each call to the real ones and record their answers.
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
  // The views are valid during the call.
  virtual void note(SeamCall call, RequestId request, const SeamQuestion& question, std::span<const std::uint64_t> values,
                    std::string_view bytes) = 0;

 protected:
  ~AnswerSink() = default;
};

// Stands between a core and its seams. The seams and the sink must outlive it.
class RecordedSeams {
 public:
  // With a key, which must outlive it, questions have no tokens and block hashes are replaced under the key (left_out.h).
  RecordedSeams(const CoreSeams& given, AnswerSink& answers, const PseudonymKey* leave_out = nullptr);
  ~RecordedSeams();
  RecordedSeams(const RecordedSeams&) = delete;
  RecordedSeams& operator=(const RecordedSeams&) = delete;

  // Returns recording seams in place of the given ones, with the given sinks.
  [[nodiscard]] CoreSeams seams() const;
  // Returns which seams exist, without answers.
  [[nodiscard]] SeamRecord which() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
