#pragma once
// Time comes in through an interface, so that tests and simulations can hold it.
#include <chrono>

namespace quire {

class Clock {
 public:
  virtual ~Clock() = default;
  // Seconds since an arbitrary origin, never going back. Thread-safe.
  [[nodiscard]] virtual double now_s() const = 0;
};

class SteadyClock final : public Clock {
 public:
  [[nodiscard]] double now_s() const override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
};

}  // namespace quire
