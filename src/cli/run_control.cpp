#include "cli/run_control.h"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "cli/progress_bar.h"

namespace quire {
namespace {

using Stopwatch = std::chrono::steady_clock;

constexpr std::chrono::seconds kShowAfter(2);
constexpr std::chrono::milliseconds kShowEvery(200);

}  // namespace

StopSignals::StopSignals() {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGINT);
  sigaddset(&signals_, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals_, &before_);
}

StopSignals::~StopSignals() {
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

bool StopSignals::has_come() {
  constexpr timespec kNow{};
  if (!has_come_ && sigtimedwait(&signals_, nullptr, &kNow) > 0) {
    has_come_ = true;
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  return has_come_;
}

RunProgress::RunProgress(std::size_t num_requests)
    : num_requests_(num_requests), next_(Stopwatch::now() + kShowAfter), is_terminal_(isatty(STDERR_FILENO) != 0) {}

void RunProgress::end() const {
  if (is_shown_) fmt::print(stderr, "\r\033[K");
}

void RunProgress::show(std::size_t num_ended) {
  const Stopwatch::time_point now = Stopwatch::now();
  if (!is_terminal_ || now < next_) return;
  next_ = now + kShowEvery;
  is_shown_ = true;
  // At 1 the bar would end its line.
  const double share = std::min(0.99, static_cast<double>(num_ended) / static_cast<double>(num_requests_));
  show_progress(fmt::format("{} of {} requests", num_ended, num_requests_), share);
}

}  // namespace quire
