#pragma once
// An output sink that collects the outputs of each request. Any thread may wait for the end of a request.
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "quire/engine.h"

namespace quire {

class Collector final : public OutputSink {
 public:
  struct Answer {
    std::vector<TokenId> tokens;
    std::vector<PositionLogprobs> logprobs;
    std::shared_ptr<const std::vector<PositionLogprobs>> prompt_logprobs;
    std::vector<float> pooled;
    std::vector<std::uint16_t> experts;
    std::uint32_t num_prompt_logprobs = 0;  // number of outputs that carried prompt logprobs
    std::uint32_t num_finals = 0;
    std::uint32_t num_inputs_ended = 0;
    FinishReason reason = FinishReason::stop;
    TokenId stop_token = -1;
    std::string error;
    std::optional<Error> refusal{};
    std::uint32_t num_cached_tokens = 0;
    std::uint32_t num_outputs_after_final = 0;
    std::shared_ptr<const KvTransferParams> kv_transfer{};
  };

  void deliver(std::vector<RequestOutput> outputs) override {
    const std::lock_guard lock(mutex_);
    for (RequestOutput& output : outputs) {
      Answer& answer = answers_[output.id];
      answer.num_outputs_after_final += answer.num_finals > 0 ? 1 : 0;
      answer.tokens.insert(answer.tokens.end(), output.tokens.begin(), output.tokens.end());
      answer.logprobs.insert(answer.logprobs.end(), output.logprobs.begin(), output.logprobs.end());
      answer.pooled.insert(answer.pooled.end(), output.pooled.begin(), output.pooled.end());
      if (output.prompt_experts != nullptr)
        answer.experts.insert(answer.experts.end(), output.prompt_experts->begin(), output.prompt_experts->end());
      answer.experts.insert(answer.experts.end(), output.routed_experts.begin(), output.routed_experts.end());
      if (output.prompt_logprobs != nullptr) {
        answer.prompt_logprobs = output.prompt_logprobs;
        ++answer.num_prompt_logprobs;
      }
      answer.num_inputs_ended += output.input_ended ? 1 : 0;
      if (output.finished) {
        ++answer.num_finals;
        finished_order_.push_back(output.id);
      }
      if (output.finished || output.input_ended) {
        answer.reason = output.reason;
        answer.stop_token = output.stop_token;
        answer.error = output.error;
        answer.refusal = output.refusal;
        answer.num_cached_tokens = output.num_cached_tokens;
        answer.kv_transfer = output.kv_transfer;
      }
    }
    changed_.notify_all();
  }

  Answer wait(RequestId id) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return answers_[id].num_finals > 0; });
    return answers_[id];
  }
  // Waits until `count` inputs of a session are answered, or the session has ended.
  Answer wait_for_inputs(RequestId id, std::uint32_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return answers_[id].num_finals > 0 || answers_[id].num_inputs_ended >= count; });
    return answers_[id];
  }
  // Returns false if the request does not end within `within_ms`.
  bool wait_for_end(RequestId id, int within_ms) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::milliseconds(within_ms), [&] { return answers_[id].num_finals > 0; });
  }
  std::vector<RequestId> finished_order() {
    const std::lock_guard lock(mutex_);
    return finished_order_;
  }
  std::size_t num_tokens(RequestId id) {
    const std::lock_guard lock(mutex_);
    return answers_[id].tokens.size();
  }
  // Waits until the request has at least `count` tokens, or has ended.
  void wait_for_tokens(RequestId id, std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return has_tokens(id, count); });
  }
  // Waits at most `at_most`.
  void wait_for_tokens(RequestId id, std::size_t count, std::chrono::milliseconds at_most) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, at_most, [&] { return has_tokens(id, count); });
  }

 private:
  bool has_tokens(RequestId id, std::size_t count) { return answers_[id].num_finals > 0 || answers_[id].tokens.size() >= count; }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RequestId, Answer> answers_;
  std::vector<RequestId> finished_order_;
};

}  // namespace quire
