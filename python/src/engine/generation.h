#pragma once
// Passes an answer from the engine thread to Python.
#include <nanobind/nanobind.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "quire/engine.h"
#include "quire/text/chat_template.h"
#include "quire/text/detokenizer.h"
#include "quire/text/tokenizer.h"

namespace quire::python {

namespace nb = nanobind;

// Stores the outputs that the engine thread delivers. It contains no Python object, because the engine thread does not have the GIL.
class Mailbox final : public OutputSink {
 public:
  void deliver(std::vector<RequestOutput> outputs) override {
    const std::lock_guard lock(mutex_);
    for (RequestOutput& output : outputs) {
      is_finished_ |= output.finished;
      outputs_.push_back(std::move(output));
    }
    output_arrived_.notify_all();
  }
  // Waits at most `wait` for the next output and returns it, or nullopt if none arrived in time.
  std::optional<RequestOutput> take(std::chrono::milliseconds wait) {
    std::unique_lock lock(mutex_);
    if (!output_arrived_.wait_for(lock, wait, [this] { return !outputs_.empty(); })) return std::nullopt;
    RequestOutput output = std::move(outputs_.front());
    outputs_.pop_front();
    return output;
  }
  // Returns whether the engine has delivered the last output.
  bool is_finished() {
    const std::lock_guard lock(mutex_);
    return is_finished_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable output_arrived_;
  std::deque<RequestOutput> outputs_;
  bool is_finished_ = false;
};

// Shared by Python's Engine and its answers. The engine is the last member, so it is destroyed first: until then, it may use the mailboxes.
struct SharedEngine {
  std::vector<std::shared_ptr<Mailbox>> mailboxes;  // includes the mailboxes of all open requests
  std::unique_ptr<const Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat;
  std::unique_ptr<Engine> engine;
};

// A part of an answer, or the whole answer.
struct Output {
  std::vector<TokenId> tokens;
  std::string text;
  nb::object logprobs, prompt_logprobs;  // [[(token, logprob, rank), ...], ...] or None
  std::vector<std::uint16_t> experts;    // [token][layer][expert]
  std::uint32_t num_layers = 0, experts_per_layer = 0;
  std::optional<std::string> finish_reason;
  std::uint32_t num_cached_tokens = 0;

  // Returns the experts as a memoryview, which NumPy can use without a copy, or None.
  [[nodiscard]] nb::object routed_experts() const;
};

// Python's iterator over one answer. If it is destroyed before its end, the answer is aborted.
class Generation {
 public:
  Generation(std::shared_ptr<SharedEngine> shared, std::shared_ptr<Mailbox> mailbox, RequestId id)
      : shared_(std::move(shared)), mailbox_(std::move(mailbox)), id_(id), text_(*shared_->tokenizer) {}
  Generation(const Generation&) = delete;
  ~Generation() { abort(); }

  // Returns the next part of the answer. Raises StopIteration after the end. Waits without the GIL and reacts to signals.
  Output next();
  // Waits for the end of the answer and returns everything that next() has not returned yet.
  Output rest();
  void abort() {
    if (!is_finished_) shared_->engine->finish(id_, FinishReason::abort);
  }

 private:
  RequestOutput wait();
  std::string text_of(const RequestOutput& output);

  std::shared_ptr<SharedEngine> shared_;
  std::shared_ptr<Mailbox> mailbox_;
  RequestId id_;
  Detokenizer text_;
  bool is_finished_ = false;
};

}  // namespace quire::python
