#pragma once
// Time as a seam: tests and simulations hold it.
#include <chrono>

namespace quire {

class Clock {
 public:
  virtual ~Clock() = default;
  // Seconds since an arbitrary origin, never going back. Called by any thread.
  [[nodiscard]] virtual double now_s() const = 0;
};

// The machine's.
class SteadyClock final : public Clock {
 public:
  [[nodiscard]] double now_s() const override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
};

}  // namespace quire
