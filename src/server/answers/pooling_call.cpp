#include "server/answers/pooling_call.h"

#include <utility>

namespace quire {

Result<std::shared_ptr<PoolingCall>> PoolingCall::start(EngineClient& engine, std::vector<EngineRequest> requests, Done done) {
  std::shared_ptr<PoolingCall> call(new PoolingCall(engine, std::move(requests), std::move(done)));
  if (auto submitted = call->submit_some(); !submitted) return std::unexpected(std::move(submitted.error()));
  return call;
}

PoolingCall::PoolingCall(EngineClient& engine, std::vector<EngineRequest> requests, Done done)
    : engine_(&engine), requests_(std::move(requests)), running_(requests_.size()), vectors_(requests_.size()), done_(std::move(done)) {}

PoolingCall::~PoolingCall() {
  abort();
}

void PoolingCall::abort() {
  for (std::optional<RequestId>& id : running_)
    if (const auto running = std::exchange(id, std::nullopt)) engine_->finish(*running, FinishReason::abort);
}

// Submits requests until kMaxAtOnce are in the engine. If the engine has no capacity for more, the rest wait until one of this call's
// requests ends.
Result<void> PoolingCall::submit_some() {
  while (num_submitted_ < requests_.size() && num_running_ < kMaxAtOnce) {
    // The engine gets a copy, because a refused request is submitted again later.
    const auto id = engine_->submit(requests_[num_submitted_], *this, static_cast<std::uint32_t>(num_submitted_));
    if (!id && id.error().code == ErrorCode::overloaded && num_running_ > 0) return {};
    if (!id) return std::unexpected(id.error());
    // The engine has accepted the request, so this copy is no longer needed.
    requests_[num_submitted_] = {};
    running_[num_submitted_++] = *id;
    ++num_running_;
  }
  return {};
}

void PoolingCall::on_output(std::uint32_t choice, RequestOutput& output) {
  if (!output.finished) return;
  running_[choice].reset();
  --num_running_;
  vectors_[choice] = std::move(output.pooled);
  if (!vectors_[choice].empty()) return;
  if (!error_ && output.reason == FinishReason::abort)
    error_ = Error{ErrorCode::shutting_down, "", "the engine aborted the request", "send the request again"};
  if (!error_) error_ = Error{ErrorCode::io, "", output.error.empty() ? "the engine failed" : output.error, "try again"};
}

void PoolingCall::on_failure() noexcept {
  try {
    error_ = Error{ErrorCode::io, "", "out of memory", "try again"};
  } catch (const std::exception&) {
    error_.emplace();
  }
}

void PoolingCall::on_step_end() {
  if (!done_) return;
  if (!error_)
    if (auto submitted = submit_some(); !submitted) error_ = std::move(submitted.error());
  if (!error_ && num_running_ > 0) return;
  abort();
  const Done done = std::exchange(done_, {});
  error_ ? done(std::unexpected(*std::move(error_))) : done(std::move(vectors_));
}

}  // namespace quire
