#pragma once
// Delays transfers of blocks so that they keep to a rate in bytes per second.
#include <algorithm>
#include <chrono>
#include <cstdint>

namespace quire {

// Used by one thread. The next block may begin when the time for the previous block, its bytes divided by the rate, has passed.
class RateLimiter {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  explicit RateLimiter(std::uint64_t bytes_per_second) : bytes_per_second_(bytes_per_second) {}

  [[nodiscard]] bool may_begin(TimePoint now) const { return bytes_per_second_ == 0 || now >= next_; }
  // Registers that a block begins. Unused time is lost, except for the last 10 ms, so that a thread that wakes up late can catch up.
  void begin(std::uint64_t bytes, TimePoint now) {
    if (bytes_per_second_ == 0) return;
    const std::chrono::duration<double> takes(static_cast<double>(bytes) / static_cast<double>(bytes_per_second_));
    next_ = std::max(next_, now - std::chrono::milliseconds(10)) + std::chrono::duration_cast<TimePoint::duration>(takes);
  }

 private:
  std::uint64_t bytes_per_second_;  // 0: no limit
  TimePoint next_{};
};

}  // namespace quire
