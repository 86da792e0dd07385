#include "core/journal/answer_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace quire {
namespace {

constexpr std::array<std::string_view, 15> kCallNames = {"nothing",
                                                         "Connector::match",
                                                         "Connector::finished",
                                                         "Connector::plan_transfers",
                                                         "Connector::order_failed",
                                                         "Connector::reset",
                                                         "EncoderConnector::has",
                                                         "Grammar::ready",
                                                         "Grammar::should_advance",
                                                         "Grammar::accept",
                                                         "Grammar::count_valid",
                                                         "ToolNamer::tool_of",
                                                         "HashFunction::hash",
                                                         "Grammar::fork",
                                                         "Grammar::failed"};

std::string describe(SeamCall call, RequestId request) {
  return fmt::format("{} for request {}", kCallNames.at(static_cast<std::size_t>(call)), request.value);
}

}  // namespace

void AnswerQueue::give(std::vector<SeamAnswer>& answers) {
  QUIRE_CHECK(next_ <= record_.answers.size(), "no more answers are taken than were recorded");
  record_.answers.erase(record_.answers.begin(), record_.answers.begin() + static_cast<std::ptrdiff_t>(next_));
  num_forgotten_ += std::exchange(next_, 0);
  std::ranges::move(answers, std::back_inserter(record_.answers));
}

const SeamAnswer* AnswerQueue::take(SeamCall call, RequestId request, const SeamQuestion& question) {
  if (!status_) return nullptr;
  if (next_ == record_.answers.size()) {
    status_ = fail(ErrorCode::invalid_argument, "record", fmt::format("the recording ends before {}", describe(call, request)),
                   "make the same calls as in the recording");
    return nullptr;
  }
  QUIRE_CHECK(next_ < record_.answers.size(), "an answer is left to take");
  const SeamAnswer& answer = record_.answers[next_];
  if (answer.call != call || answer.request != request || answer.question != question.digest()) {
    const bool is_same = answer.call == call && answer.request == request;
    status_ = fail(ErrorCode::invalid_argument, "record",
                   is_same ? fmt::format("answer {} is for {} with other arguments or in another state", num_forgotten_ + next_,
                                         describe(call, request))
                           : fmt::format("answer {} is for {}, but the core calls {}", num_forgotten_ + next_,
                                         describe(answer.call, answer.request), describe(call, request)),
                   "make the same calls as in the recording, on a core with the same configuration");
    return nullptr;
  }
  ++next_;
  return &answer;
}

std::optional<SeamValues> AnswerQueue::take_numbers(SeamCall call, RequestId request, const SeamQuestion& question, std::size_t count) {
  const SeamAnswer* answer = take(call, request, question);
  if (answer == nullptr) return std::nullopt;
  if (answer->values.size() != count) {
    damaged();
    return std::nullopt;
  }
  return SeamValues(answer->values);
}

bool AnswerQueue::take_flag(SeamCall call, RequestId request, const SeamQuestion& question) {
  auto values = take_numbers(call, request, question, 1);
  return values && values->next() != 0;
}

bool AnswerQueue::next_is(SeamCall call, RequestId request) const {
  if (!status_ || next_ == record_.answers.size()) return false;
  const SeamAnswer& answer = record_.answers[next_];
  return answer.call == call && answer.request == request;
}

void AnswerQueue::damaged() {
  QUIRE_CHECK(next_ > 0, "an answer was taken before");
  const SeamAnswer& answer = record_.answers[next_ - 1];
  status_ = fail(ErrorCode::invalid_argument, "record",
                 fmt::format("answer {} is not a valid answer of {}", num_forgotten_ + next_ - 1, describe(answer.call, answer.request)),
                 "use a record that a SeamRecorder made");
}

}  // namespace quire
