#pragma once
// Shows the progress of a long run on a terminal, and lets Ctrl-C end it in order. Used on the main thread.
#include <chrono>
#include <csignal>
#include <cstddef>

namespace quire {

// Blocks SIGINT and SIGTERM for this thread, so that the run can end in order. After the first signal, a second one ends the process.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Returns true after one of the signals.
  [[nodiscard]] bool has_come();

 private:
  sigset_t signals_{}, before_{};
  bool has_come_ = false;
};

// Shows on a terminal how many requests have ended, if the run takes longer than two seconds.
class RunProgress {
 public:
  explicit RunProgress(std::size_t num_requests);

  void show(std::size_t num_ended);
  // Removes the line.
  void end() const;

 private:
  const std::size_t num_requests_;
  std::chrono::steady_clock::time_point next_;
  const bool is_terminal_;
  bool is_shown_ = false;
};

}  // namespace quire
