#pragma once
// Decides when blocks may begin to move, so that their bytes keep to a rate.
#include <algorithm>
#include <chrono>
#include <cstdint>

namespace quire {

// Used by one thread. A block may begin when earlier blocks have used up their time at the rate. Its time counts from then on.
class RateLimiter {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  explicit RateLimiter(std::uint64_t bytes_per_second) : bytes_per_second_(bytes_per_second) {}

  [[nodiscard]] bool may_begin(TimePoint now) const { return bytes_per_second_ == 0 || now >= next_; }
  // Unused time is lost, except for 10 ms, which make up for a thread that wakes up late.
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
