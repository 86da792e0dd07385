// What each side does with the queue (see inbox.h): clients' threads append, the engine thread takes between two steps, and whoever stops
// the engine closes it. Every function takes the mutex once, for moments. None calls a sink, or an answer while the mutex is held: these
// may call back. What was accepted is never lost: it comes out of take() once, as a submission or as cancelled.
#include "engine/requests/inbox.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace quire {
namespace {

template <class T>
void move_some(std::deque<T>& from, std::vector<T>& to) {
  for (; !from.empty() && to.size() < Inbox::kMaxTaken; from.pop_front()) to.push_back(std::move(from.front()));
}

}  // namespace

Result<void> Inbox::room(std::uint32_t num_requests) const {
  if (closed_) return refuse_closed();
  // Whoever was preempted waits again, and is not in num_waiting_; so what is open beyond one full batch counts as waiting, too.
  const std::size_t num_beyond_batch = open_.size() - std::min<std::size_t>(open_.size(), max_num_seqs_);
  const std::size_t num_waiting = std::max<std::size_t>(num_waiting_, num_beyond_batch);
  if (num_waiting + num_requests > max_num_waiting_)
    return fail(ErrorCode::overloaded, "", fmt::format("{} requests are waiting already", num_waiting), "try again later");
  return {};
}

Result<void> Inbox::check_room(std::uint32_t num_requests) const {
  const std::lock_guard lock(mutex_);
  return room(num_requests);
}

Result<RequestId> Inbox::submit(Submission submission) {
  const std::lock_guard lock(mutex_);
  const std::uint32_t n = submission.request.n;
  if (Result<void> free = room(n); !free) return std::unexpected(std::move(free.error()));
  const RequestId id = open(n);
  if (submission.request.session) open_.at(id) = {.is_session = true, .takes_input = true, .num_tokens = submission.request.prompt.size()};
  submission.id = id;
  submissions_.push_back({std::move(submission)});
  ++num_queued_;
  has_news_ = true;
  wake_.notify_one();
  return id;
}

Result<RequestId> Inbox::fork(Fork fork) {
  const std::lock_guard lock(mutex_);
  if (!open_.contains(fork.parent))
    return fail(ErrorCode::not_found, "parent", fmt::format("no request {} is open", fork.parent.value), "fork one before it ends");
  // The core does not know it yet, and commands are handled before submissions.
  if (queued(fork.parent) != nullptr)
    return fail(ErrorCode::overloaded, "parent", fmt::format("request {} has not been taken yet", fork.parent.value), "try again");
  if (Result<void> free = room(fork.options.n); !free) return std::unexpected(std::move(free.error()));
  const Open parent = open_.at(fork.parent);
  fork.first = open(fork.options.n);
  for (std::uint32_t i = 0; parent.is_session && i < fork.options.n; ++i)
    open_.at({fork.first.value + i}) = {.is_session = true, .takes_input = true, .num_tokens = parent.num_tokens};
  commands_.emplace_back(fork);
  has_news_ = true;
  wake_.notify_one();
  return fork.first;
}

Result<void> Inbox::append(SessionTokens input, std::uint32_t max_model_len) {
  const std::lock_guard lock(mutex_);
  if (closed_) return refuse_closed();
  const auto found = open_.find(input.id);
  if (found == open_.end() || found->second.ending)
    return fail(ErrorCode::not_found, "session", fmt::format("no request {} is open", input.id.value), "begin another");
  Open& session = found->second;
  if (!session.takes_input) return fail(ErrorCode::invalid_argument, "session", "takes no input, or no more of it", "begin a session");
  const std::size_t num_tokens = session.num_tokens + input.tokens.size();
  if (num_tokens >= max_model_len) {
    return fail(ErrorCode::invalid_argument, "session",
                fmt::format("would have {} tokens of input, and the context holds {}, answers included", num_tokens, max_model_len),
                "begin another");
  }
  session.num_tokens = num_tokens;
  session.takes_input = !input.tokens.empty();
  if (Queued* const own = queued(input.id))
    own->submission.inputs.push_back(std::move(input.tokens));
  else
    commands_.emplace_back(std::move(input));
  has_news_ = true;
  wake_.notify_one();
  return {};
}

RequestId Inbox::open(std::uint32_t num_requests) {
  const RequestId first{next_id_};
  for (std::uint32_t i = 0; i < num_requests; ++i) open_.emplace(RequestId{next_id_++}, Open{});
  num_waiting_ += num_requests;
  return first;
}

// The submission that it belongs to, if it has not been taken.
Inbox::Queued* Inbox::queued(RequestId id) {
  const auto behind = std::ranges::upper_bound(submissions_, id, {}, [](const Queued& one) { return one.submission.id; });
  if (behind == submissions_.begin()) return nullptr;
  Queued& last = *std::prev(behind);
  return id.value - last.submission.id.value < last.submission.request.n ? &last : nullptr;
}

void Inbox::cancel(Queued& queued, FinishReason reason) {
  if (std::exchange(queued.is_cancelled, true)) return;
  cancelled_.push_back({std::move(queued.submission), reason});
  --num_queued_;
}

void Inbox::end_queued(Queued& queued, Ending ending) {
  if (queued.is_cancelled) return;
  queued.submission.ended.push_back(ending);
  if (queued.submission.ended.size() == queued.submission.request.n) cancel(queued, ending.reason);
}

void Inbox::cancel_all() {
  for (Queued& queued : submissions_) cancel(queued, FinishReason::abort);
}

void Inbox::finish(RequestId id, FinishReason reason) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(id);
  if (found == open_.end() || found->second.ending) return;
  found->second.ending = true;
  if (Queued* const own = queued(id))
    end_queued(*own, {id, reason});
  else
    commands_.emplace_back(Ending{id, reason});
  has_news_ = true;
  wake_.notify_one();
}

std::unexpected<Error> Inbox::refuse_closed() {
  return fail(ErrorCode::shutting_down, "", "the engine is shutting down");
}

void Inbox::control(Control control) {
  {
    const std::lock_guard lock(mutex_);
    if (!closed_) {
      const PauseOptions* pausing = std::get_if<PauseOptions>(&control.verb);
      // At once: taken later, they would begin after the pause had ended everything else.
      if (pausing != nullptr && pausing->mode == PauseMode::abort) cancel_all();
      commands_.emplace_back(std::move(control));
      has_news_ = true;
      wake_.notify_one();
      return;
    }
  }
  control.answer(refuse_closed());
}

bool Inbox::put(Command& command) {
  const std::lock_guard lock(mutex_);
  if (closed_) return false;
  commands_.push_back(std::move(command));
  has_news_ = true;
  wake_.notify_one();
  return true;
}

void Inbox::take(Intake& intake, std::optional<double> wait_s) {
  intake.cancelled.clear();
  intake.commands.clear();
  intake.submissions.clear();
  std::unique_lock lock(mutex_);
  const auto has_news = [this] { return has_news_; };
  if (!wait_s.has_value())
    wake_.wait(lock, has_news);
  else if (*wait_s > 0.0)
    wake_.wait_for(lock, std::chrono::duration<double>(*wait_s), has_news);
  move_some(cancelled_, intake.cancelled);
  move_some(commands_, intake.commands);
  take_submissions(intake.submissions);
  intake.num_left = num_queued_;
  intake.has_more = num_queued_ > 0 || !cancelled_.empty() || !commands_.empty();
  intake.closed = closed_;
  intake.aborting = aborting_;
  // What is left is for the next call, which must not wait then.
  has_news_ = intake.has_more;
}

void Inbox::take_submissions(std::vector<Submission>& taken) {
  std::size_t num_tokens = 0;
  for (; !submissions_.empty() && taken.size() < kMaxTaken; submissions_.pop_front()) {
    Queued& next = submissions_.front();
    if (next.is_cancelled) continue;
    num_tokens += next.submission.request.prompt.size();
    if (num_tokens > kMaxPromptTokens && !taken.empty()) break;
    taken.push_back(std::move(next.submission));
    --num_queued_;
  }
}

void Inbox::admitted(std::span<const RequestId> ids) {
  if (ids.empty()) return;
  const std::lock_guard lock(mutex_);
  for (const RequestId id : ids) {
    const auto found = open_.find(id);
    if (found != open_.end() && found->second.waiting) {
      found->second.waiting = false;
      --num_waiting_;
    }
  }
}

void Inbox::ended(std::span<const RequestId> ids) {
  if (ids.empty()) return;
  const std::lock_guard lock(mutex_);
  for (const RequestId id : ids) {
    if (const auto found = open_.find(id); found != open_.end()) {
      num_waiting_ -= found->second.waiting ? 1 : 0;
      open_.erase(found);
    }
  }
}

void Inbox::wake() {
  const std::lock_guard lock(mutex_);
  has_news_ = true;
  wake_.notify_one();
}

void Inbox::set_done() {
  const std::lock_guard lock(mutex_);
  done_ = true;
  over_.notify_all();
}

void Inbox::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  has_news_ = true;
  wake_.notify_one();
}

bool Inbox::wait_until_done(double timeout_s) {
  std::unique_lock lock(mutex_);
  return over_.wait_for(lock, std::chrono::duration<double>(timeout_s), [this] { return done_; });
}

void Inbox::abort_rest() {
  const std::lock_guard lock(mutex_);
  aborting_ = true;
  cancel_all();
  has_news_ = true;
  wake_.notify_one();
}

}  // namespace quire
