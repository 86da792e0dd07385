#include "engine/inbox.h"

#include <fmt/format.h>

#include <chrono>

namespace quire {
namespace {

std::unexpected<Error> refuse_closed() {
  return fail(ErrorCode::shutting_down, "", "the engine is shutting down");
}

}  // namespace

Result<RequestId> Inbox::submit(EngineRequest request, OutputSink& sink, double arrival_s) {
  const std::lock_guard lock(mutex_);
  if (phase_.closed) return refuse_closed();
  if (num_queued_ >= max_num_waiting_)
    return fail(ErrorCode::overloaded, "", fmt::format("{} requests are waiting already", num_queued_), "try again later");
  const RequestId id{next_id_++};
  open_.emplace(id, Open{});
  ++num_queued_;
  commands_.emplace_back(Submission{id, std::move(request), &sink, arrival_s});
  wake_.notify_one();
  return id;
}

void Inbox::finish(RequestId id, FinishReason reason) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(id);
  if (found == open_.end() || found->second.ending) return;
  found->second.ending = true;
  commands_.emplace_back(Ending{id, reason});
  wake_.notify_one();
}

void Inbox::control(Control control) {
  {
    const std::lock_guard lock(mutex_);
    if (!phase_.closed) {
      commands_.emplace_back(std::move(control));
      wake_.notify_one();
      return;
    }
  }
  control.answer(refuse_closed());
}

void Inbox::take(std::vector<Command>& commands, bool wait) {
  commands.clear();
  std::unique_lock lock(mutex_);
  if (wait) wake_.wait(lock, [this] { return !commands_.empty() || phase_.closed; });
  std::swap(commands, commands_);
}

void Inbox::admitted(std::span<const RequestId> ids) {
  if (ids.empty()) return;
  const std::lock_guard lock(mutex_);
  for (const RequestId id : ids) {
    const auto found = open_.find(id);
    if (found != open_.end() && found->second.queued) {
      found->second.queued = false;
      --num_queued_;
    }
  }
}

void Inbox::forget(RequestId id) {
  const auto found = open_.find(id);
  if (found != open_.end()) {
    num_queued_ -= found->second.queued ? 1 : 0;
    open_.erase(found);
  }
}

void Inbox::ended(std::span<const RequestId> ids) {
  if (ids.empty()) return;
  const std::lock_guard lock(mutex_);
  for (const RequestId id : ids) forget(id);
  if (open_.empty()) empty_.notify_all();
}

void Inbox::close() {
  const std::lock_guard lock(mutex_);
  phase_.closed = true;
  wake_.notify_one();
}

bool Inbox::wait_until_empty(double timeout_s) {
  std::unique_lock lock(mutex_);
  return empty_.wait_for(lock, std::chrono::duration<double>(timeout_s), [this] { return open_.empty(); });
}

void Inbox::abort_rest() {
  const std::lock_guard lock(mutex_);
  phase_.aborting = true;
  wake_.notify_one();
}

Inbox::Phase Inbox::phase() const {
  const std::lock_guard lock(mutex_);
  return phase_;
}

}  // namespace quire
