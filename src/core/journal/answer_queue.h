#pragma once
// Returns the recorded answers in order, as long as the questions equal the recorded ones.
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
  // Returns the next number, or 0 if all numbers were read.
  std::uint64_t next() {
    is_short_ = is_short_ || left_.empty();
    if (left_.empty()) return 0;
    const std::uint64_t value = left_.front();
    left_ = left_.subspan(1);
    return value;
  }
  // Returns a list: the next number is its length.
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

// Used by the seams of a SeamPlayer, on the core's thread. After the first question that differs from the record, no answers are returned
// any more, because they would belong to other questions. status() then reports the question.
class AnswerQueue {
 public:
  explicit AnswerQueue(SeamRecord record) : record_(std::move(record)) {}

  // Appends answers, and removes answers that were already taken.
  void give(std::vector<SeamAnswer>& answers);
  // Returns the next answer, or null if this or an earlier question differs from the record.
  const SeamAnswer* take(SeamCall call, RequestId request, const SeamQuestion& question = {});
  // Returns an answer that consists of `count` numbers, or nullopt if take() fails or the answer has another length.
  std::optional<SeamValues> take_numbers(SeamCall call, RequestId request, const SeamQuestion& question, std::size_t count);
  // Returns whether the next answer belongs to this call. Used for calls whose answers are recorded only if they are true.
  [[nodiscard]] bool next_is(SeamCall call, RequestId request) const;
  bool take_flag(SeamCall call, RequestId request, const SeamQuestion& question = {});
  // Records that the last answer is not valid for its call.
  void damaged();

  // Returns an empty question, to which content with tokens may be added.
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
