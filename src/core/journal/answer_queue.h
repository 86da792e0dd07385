#pragma once
// Returns the answers of a record in order, as long as the questions equal the recorded ones.
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "core/journal/question.h"
#include "quire/seam_record.h"

namespace quire {

// Reads the numbers of an answer in order.
class SeamValues {
 public:
  explicit SeamValues(std::span<const std::uint64_t> values) : left_(values) {}
  // Returns 0 if all numbers were read.
  std::uint64_t next() {
    is_short_ = is_short_ || left_.empty();
    if (left_.empty()) return 0;
    const std::uint64_t value = left_.front();
    left_ = left_.subspan(1);
    return value;
  }
  // Returns as many numbers as the next number says.
  std::span<const std::uint64_t> list() {
    const std::uint64_t size = next();
    is_short_ = is_short_ || size > left_.size();
    if (is_short_) return {};
    return std::exchange(left_, left_.subspan(size)).first(size);
  }
  [[nodiscard]] bool empty() const { return left_.empty(); }
  [[nodiscard]] bool is_short() const { return is_short_; }

 private:
  std::span<const std::uint64_t> left_;
  bool is_short_ = false;
};

// Used by the seams of a SeamPlayer, on the core's thread. The first question that differs from the record ends it: later answers would
// belong to other questions. From then on it returns no answers, and the status reports what was asked.
class AnswerQueue {
 public:
  explicit AnswerQueue(SeamRecord record) : record_(std::move(record)) {}

  // Appends answers, and forgets answers that were taken.
  void give(std::vector<SeamAnswer>& answers);
  // Returns null if this or an earlier question differs from the record.
  const SeamAnswer* take(SeamCall call, RequestId request, const SeamQuestion& question = {});
  // Returns an answer of so many numbers; nullopt: see take().
  std::optional<SeamValues> take_numbers(SeamCall call, RequestId request, const SeamQuestion& question, std::size_t count);
  // Returns whether the next answer belongs to this call. Used for calls that are recorded only with some answers.
  [[nodiscard]] bool next_is(SeamCall call, RequestId request) const;
  bool take_flag(SeamCall call, RequestId request, const SeamQuestion& question = {});
  // Reports that the last taken answer does not fit its call.
  void damaged();

  // Returns an empty question for content that may include tokens.
  [[nodiscard]] SeamQuestion question() const { return SeamQuestion(!record_.omits_tokens); }
  [[nodiscard]] const SeamRecord& record() const { return record_; }
  [[nodiscard]] const Result<void>& status() const { return status_; }
  [[nodiscard]] std::size_t num_left() const { return record_.answers.size() - next_; }

 private:
  SeamRecord record_;
  std::size_t next_ = 0, num_forgotten_ = 0;
  Result<void> status_;
};

}  // namespace quire
