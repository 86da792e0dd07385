#pragma once
// An answer on its way from the engine thread to Python.
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

// What the engine thread delivers waits here; it holds no Python object, for that thread has no GIL.
class Mailbox final : public OutputSink {
 public:
  void deliver(std::vector<RequestOutput> outputs) override {
    const std::lock_guard lock(mutex_);
    for (RequestOutput& output : outputs) {
      is_over_ |= output.finished;
      outputs_.push_back(std::move(output));
    }
    news_.notify_all();
  }
  // Waits for so long at most.
  std::optional<RequestOutput> take(std::chrono::milliseconds wait) {
    std::unique_lock lock(mutex_);
    if (!news_.wait_for(lock, wait, [this] { return !outputs_.empty(); })) return std::nullopt;
    RequestOutput output = std::move(outputs_.front());
    outputs_.pop_front();
    return output;
  }
  // The engine delivers no more.
  bool is_over() {
    const std::lock_guard lock(mutex_);
    return is_over_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable news_;
  std::deque<RequestOutput> outputs_;
  bool is_over_ = false;
};

// Shared by Python's Engine and its answers. The engine is the last member, so it ends first, and its mailboxes after it.
struct Serving {
  std::vector<std::shared_ptr<Mailbox>> mailboxes;  // at least of the open requests
  std::unique_ptr<const Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat;
  std::unique_ptr<Engine> engine;
};

// Part of an answer, or all of it.
struct Output {
  std::vector<TokenId> tokens;
  std::string text;
  nb::object logprobs, prompt_logprobs;  // [[(token, logprob, rank), ...], ...] or None
  std::vector<std::uint16_t> experts;    // [token][layer][expert]
  std::uint32_t num_layers = 0, experts_per_layer = 0;
  std::optional<std::string> finish_reason;
  std::uint32_t num_cached_tokens = 0;

  // A memoryview of them, or None: NumPy takes it as it is.
  [[nodiscard]] nb::object routed_experts() const;
};

// Python's iterator over one answer. What is dropped before its end is aborted.
class Generation {
 public:
  Generation(std::shared_ptr<Serving> serving, std::shared_ptr<Mailbox> mailbox, RequestId id)
      : serving_(std::move(serving)), mailbox_(std::move(mailbox)), id_(id), text_(*serving_->tokenizer) {}
  Generation(const Generation&) = delete;
  ~Generation() { abort(); }

  // What has come since; StopIteration behind the end. Waits without the GIL, and wakes for signals.
  Output next();
  // All that is left, as one.
  Output rest();
  void abort() {
    if (!is_over_) serving_->engine->finish(id_, FinishReason::abort);
  }

 private:
  RequestOutput wait();
  std::string text_of(const RequestOutput& output);

  std::shared_ptr<Serving> serving_;
  std::shared_ptr<Mailbox> mailbox_;
  RequestId id_;
  Detokenizer text_;
  bool is_over_ = false;
};

}  // namespace quire::python
