#pragma once
// A source of time that tests and simulations can replace.
#include <chrono>

namespace quire {

// The clock that the engine reads. Tests and simulations implement it with a time that they control.
class Clock {
 public:
  virtual ~Clock() = default;
  // Returns seconds since an arbitrary origin. The value never decreases. Called on any thread.
  [[nodiscard]] virtual double now_s() const = 0;
};

// Reads the machine's steady clock.
class SteadyClock final : public Clock {
 public:
  [[nodiscard]] double now_s() const override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
};

}  // namespace quire
