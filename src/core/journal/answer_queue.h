#pragma once
// The answers of a record, given out in order as long as the questions are those that were recorded.
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "core/journal/question.h"
#include "quire/seam_record.h"

namespace quire {

// The numbers of an answer, read in order.
class AnswerValues {
 public:
  explicit AnswerValues(std::span<const std::uint64_t> values) : left_(values) {}
  // 0 where there is none left.
  std::uint64_t next() {
    lacks_ = lacks_ || left_.empty();
    if (left_.empty()) return 0;
    const std::uint64_t value = left_.front();
    left_ = left_.subspan(1);
    return value;
  }
  // As many as the next number says.
  std::span<const std::uint64_t> list() {
    const std::uint64_t size = next();
    lacks_ = lacks_ || size > left_.size();
    if (lacks_) return {};
    return std::exchange(left_, left_.subspan(size)).first(size);
  }
  [[nodiscard]] bool empty() const { return left_.empty(); }
  [[nodiscard]] bool lacks() const { return lacks_; }

 private:
  std::span<const std::uint64_t> left_;
  bool lacks_ = false;
};

// Behind the seams of a SeamPlayer, on the core's thread. The first question that was not recorded ends it: later answers would be to other
// questions, so none is given any more and the status says what was asked.
class AnswerQueue {
 public:
  explicit AnswerQueue(SeamRecord record) : record_(std::move(record)) {}

  // More of them, behind what there is; those that were taken are forgotten.
  void give(std::vector<SeamAnswer>& answers);
  // Null: not what was recorded, now or before.
  const SeamAnswer* take(SeamCall call, RequestId request, const Question& question = {});
  // An answer of so many numbers; nullopt as above.
  std::optional<AnswerValues> take_numbers(SeamCall call, RequestId request, const Question& question, std::size_t count);
  // Whether that is what the next answer is to: of calls that are noted only for some answers.
  [[nodiscard]] bool next_is(SeamCall call, RequestId request) const;
  bool take_flag(SeamCall call, RequestId request, const Question& question = {});
  // The answer taken last is none to its call.
  void damaged();

  // To be filled with what may have tokens.
  [[nodiscard]] Question question() const { return Question(!record_.leaves_tokens_out); }
  [[nodiscard]] const SeamRecord& record() const { return record_; }
  [[nodiscard]] const Result<void>& status() const { return status_; }
  [[nodiscard]] std::size_t num_left() const { return record_.answers.size() - next_; }

 private:
  SeamRecord record_;
  std::size_t next_ = 0, num_forgotten_ = 0;
  Result<void> status_;
};

}  // namespace quire
