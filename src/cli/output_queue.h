#pragma once
// A sink for a program that waits for its outputs: the engine thread delivers outputs, and one other thread takes them.
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "quire/engine.h"

namespace quire {

class OutputQueue final : public OutputSink {
 public:
  void deliver(std::vector<RequestOutput> outputs) override {
    const std::scoped_lock lock(mutex_);
    for (RequestOutput& output : outputs) outputs_.push_back(std::move(output));
    // Notifies while the lock is held. Otherwise the other thread could take the last output and destroy this queue before the
    // notification.
    ready_.notify_one();
  }

  // Returns all outputs since the last call. Waits until there is at least one.
  std::vector<RequestOutput> take() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [this] { return !outputs_.empty(); });
    return std::exchange(outputs_, {});
  }

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::vector<RequestOutput> outputs_;
};

}  // namespace quire
