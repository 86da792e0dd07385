#include "server/answers/engine_client.h"

#include <exception>
#include <iterator>
#include <utility>

namespace quire {

Result<RequestId> EngineClient::submit(EngineRequest request, OutputReceiver& receiver, std::uint32_t choice) {
  const std::uint32_t n = request.n;
  auto id = engine_->submit(std::move(request), *this);
  if (id) register_receiver(*id, n, receiver, choice);
  return id;
}

Result<RequestId> EngineClient::fork(RequestId parent, const EngineFork& fork, OutputReceiver& receiver, std::uint32_t choice) {
  auto id = engine_->fork(parent, fork, *this);
  if (id) register_receiver(*id, fork.n, receiver, choice);
  return id;
}

// Sets the receiver of n consecutive ids. Outputs are posted to this thread, so no output can arrive before the entries exist.
void EngineClient::register_receiver(RequestId first, std::uint32_t n, OutputReceiver& receiver, std::uint32_t choice) {
  for (std::uint32_t i = 0; i < n; ++i) entries_.emplace(RequestId{first.value + i}, Entry{&receiver, choice + i});
}

void EngineClient::finish(RequestId id, FinishReason reason) {
  if (entries_.erase(id) > 0) engine_->finish(id, reason);
}

void EngineClient::deliver(std::vector<RequestOutput> outputs) {
  if (outputs.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    const bool is_posted = !waiting_.empty();
    for (RequestOutput& output : outputs) merge_output(std::move(output));
    if (is_posted) return;
  }
  post_([this] {
    std::vector<RequestOutput> all;
    {
      const std::lock_guard taking(mutex_);
      all.swap(waiting_);
      mergeable_.clear();
    }
    dispatch(all);
  });
}

void EngineClient::merge_output(RequestOutput output) {
  const auto found = mergeable_.find(output.id);
  if (found == mergeable_.end()) {
    if (!output.finished && !output.input_ended) mergeable_.emplace(output.id, waiting_.size());
    return waiting_.push_back(std::move(output));
  }
  RequestOutput& before = waiting_[found->second];
  if (output.finished || output.input_ended) mergeable_.erase(found);
  const auto append = [](auto& to, auto& from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  };
  append(before.tokens, output.tokens);
  append(before.logprobs, output.logprobs);
  append(before.routed_experts, output.routed_experts);
  // All other fields take the values of the newer output.
  std::swap(before.tokens, output.tokens);
  std::swap(before.logprobs, output.logprobs);
  std::swap(before.routed_experts, output.routed_experts);
  if (output.prompt_logprobs == nullptr) output.prompt_logprobs = std::move(before.prompt_logprobs);
  if (output.prompt_experts == nullptr) output.prompt_experts = std::move(before.prompt_experts);
  before = std::move(output);
}

void EngineClient::dispatch(std::vector<RequestOutput>& outputs) {
  std::vector<OutputReceiver*> receivers;
  std::exception_ptr failure;
  for (RequestOutput& output : outputs) {
    const auto found = entries_.find(output.id);
    if (found == entries_.end()) continue;
    const Entry entry = found->second;
    // The entry is erased before the call, because the receiver may submit again or destroy itself.
    if (output.finished) entries_.erase(found);
    try {
      entry.receiver->on_output(entry.choice, output);
    } catch (const std::exception&) {
      failure = std::current_exception();
      entry.receiver->on_failure();
    }
    // Avoids most repeated calls of on_step_end(), because outputs of one receiver are mostly adjacent. A repeated call is harmless.
    if (receivers.empty() || receivers.back() != entry.receiver) receivers.push_back(entry.receiver);
  }
  for (OutputReceiver* receiver : receivers) receiver->on_step_end();
  // Throws to the caller of this task, which logs the exception.
  if (failure) std::rethrow_exception(failure);
}

}  // namespace quire
