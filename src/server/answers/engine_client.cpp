#include "server/answers/engine_client.h"

#include <exception>
#include <memory>
#include <utility>

namespace quire {

Result<RequestId> EngineClient::submit(EngineRequest request, OutputReceiver& receiver, std::uint32_t choice) {
  const std::uint32_t n = request.n;
  auto id = engine_->submit(std::move(request), *this);
  if (id) expect(*id, n, receiver, choice);
  return id;
}

Result<RequestId> EngineClient::fork(RequestId parent, const EngineFork& fork, OutputReceiver& receiver, std::uint32_t choice) {
  auto id = engine_->fork(parent, fork, *this);
  if (id) expect(*id, fork.n, receiver, choice);
  return id;
}

// Outputs are posted to this thread, so none can overtake the entries.
void EngineClient::expect(RequestId first, std::uint32_t n, OutputReceiver& receiver, std::uint32_t choice) {
  for (std::uint32_t i = 0; i < n; ++i) entries_.emplace(RequestId{first.value + i}, Entry{&receiver, choice + i});
}

void EngineClient::finish(RequestId id, FinishReason reason) {
  if (entries_.erase(id) > 0) engine_->finish(id, reason);
}

void EngineClient::deliver(std::vector<RequestOutput> outputs) {
  // std::function wants a copyable task.
  post_([this, shared = std::make_shared<std::vector<RequestOutput>>(std::move(outputs))] { dispatch(*shared); });
}

void EngineClient::dispatch(std::vector<RequestOutput>& outputs) {
  std::vector<OutputReceiver*> receivers;
  std::exception_ptr failure;
  for (RequestOutput& output : outputs) {
    const auto found = entries_.find(output.id);
    if (found == entries_.end()) continue;
    const Entry entry = found->second;
    // Before the receiver is told: it may submit anew, or go.
    if (output.finished) entries_.erase(found);
    try {
      entry.receiver->on_output(entry.choice, output);
    } catch (const std::exception&) {
      failure = std::current_exception();
      entry.receiver->on_failure();
    }
    // A receiver's requests mostly stand together; to be woken twice does no harm.
    if (receivers.empty() || receivers.back() != entry.receiver) receivers.push_back(entry.receiver);
  }
  for (OutputReceiver* receiver : receivers) receiver->on_step_end();
  // Whoever runs the task logs it.
  if (failure) std::rethrow_exception(failure);
}

}  // namespace quire
