#pragma once
// Seams that hand each call to the real ones and note what those answered.
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
  // What it views is valid during the call.
  virtual void note(SeamCall call, RequestId request, const Question& question, std::span<const std::uint64_t> values,
                    std::string_view bytes) = 0;

 protected:
  ~AnswerSink() = default;
};

// Between a core and its seams, which outlive it, as the sink does.
class RecordedSeams {
 public:
  // With a key, which outlives it, questions are without tokens and names under the key (left_out.h).
  RecordedSeams(const CoreSeams& given, AnswerSink& answers, const NameKey* leave_out = nullptr);
  ~RecordedSeams();
  RecordedSeams(const RecordedSeams&) = delete;
  RecordedSeams& operator=(const RecordedSeams&) = delete;

  // Those that are there, with the sinks that were given.
  [[nodiscard]] CoreSeams seams() const;
  // Which are there; without answers.
  [[nodiscard]] SeamRecord which() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
