#pragma once
// How fast blocks may begin to move, so that their bytes keep to a rate.
#include <algorithm>
#include <chrono>
#include <cstdint>

namespace quire {

// Of one thread. A block may begin when those before it have had their time at the rate; its own time counts from then on.
class Pace {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  explicit Pace(std::uint64_t bytes_per_second) : bytes_per_second_(bytes_per_second) {}

  [[nodiscard]] bool may_begin(TimePoint now) const { return bytes_per_second_ == 0 || now >= next_; }
  // What the time before left unused is lost, but for some milliseconds: those that a thread oversleeps.
  void begin(std::uint64_t bytes, TimePoint now) {
    if (bytes_per_second_ == 0) return;
    const std::chrono::duration<double> takes(static_cast<double>(bytes) / static_cast<double>(bytes_per_second_));
    next_ = std::max(next_, now - std::chrono::milliseconds(10)) + std::chrono::duration_cast<TimePoint::duration>(takes);
  }

 private:
  std::uint64_t bytes_per_second_;  // 0: as they come
  TimePoint next_{};
};

}  // namespace quire
