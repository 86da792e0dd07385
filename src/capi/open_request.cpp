#include "capi/open_request.h"

#include <algorithm>

namespace quire {

void OpenRequest::take(PollTimeout timeout) {
  LocalReplyPart part = call_->take(timeout);
  end_ = part.end;
  reader_.feed(std::move(part));
}

std::optional<ReplyError> OpenRequest::refusal() {
  const std::scoped_lock lock(mutex_);
  take(std::chrono::milliseconds(0));
  return reader_.refusal();
}

OpenRequest::Polled OpenRequest::poll(PollTimeout timeout) {
  const auto start = std::chrono::steady_clock::now();
  const auto time_left = [&]() -> PollTimeout {
    if (!timeout) return std::nullopt;
    const auto passed = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start);
    return std::max(*timeout - passed, std::chrono::milliseconds(0));
  };
  const std::scoped_lock lock(mutex_);
  for (bool is_timed_out = false;;) {
    current_ = reader_.next();
    if (current_) return {&*current_, LocalCallEnd::none};
    if (is_timed_out || end_ != LocalCallEnd::none) return {nullptr, end_};
    const PollTimeout left = time_left();
    is_timed_out = left && left->count() == 0;
    take(left);
  }
}

}  // namespace quire
