#pragma once
// Synthetic clients for `quire demo`, which use a server on this machine: agents whose prompts grow in each turn, readers that return to
// long texts, writers that request several answers, forms that must be JSON, and clients that disconnect in the middle of an answer.
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace quire {

struct DemoMixOptions {
  std::uint16_t port = 8000;
  std::uint32_t num_clients = 14;
  std::uint64_t seed = 0;
  double pace = 1.0;             // factor of the pauses between requests
  bool supports_schemas = true;  // the server supports structured output with a JSON schema
};

struct DemoCounts {
  std::uint64_t num_answers = 0, num_left = 0, num_refused = 0;
};

// Runs each client on a separate thread. The destructor stops the clients and joins the threads, which end once the server has answered or
// has closed their connections.
class DemoMix {
 public:
  explicit DemoMix(const DemoMixOptions& options);
  ~DemoMix();
  DemoMix(const DemoMix&) = delete;
  DemoMix& operator=(const DemoMix&) = delete;

  void stop();
  [[nodiscard]] DemoCounts counts() const { return {num_answers_, num_left_, num_refused_}; }

 private:
  friend class DemoClient;
  // Sleeps for `seconds`. Returns false if the client must end.
  bool pause(double seconds);
  [[nodiscard]] bool is_stopping() const { return stopping_; }

  const DemoMixOptions options_;
  std::atomic<std::uint64_t> num_answers_ = 0, num_left_ = 0, num_refused_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<bool> stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace quire
