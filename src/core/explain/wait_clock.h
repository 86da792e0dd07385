#pragma once
// How long the queue was held, and for what, summed up: who waits notes what the sums were when he came, and when he goes.
#include <array>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "quire/lab/explain.h"

namespace quire {

struct WaitSums {
  std::array<double, kNumEventCauses> seconds{};
  std::array<std::uint64_t, kNumEventCauses> steps{};

  void add(EventCause cause, double s, std::uint64_t num_steps) {
    QUIRE_CHECK(static_cast<std::size_t>(cause) < kNumEventCauses, "a cause that is summed up");
    seconds[static_cast<std::size_t>(cause)] += s;
    steps[static_cast<std::size_t>(cause)] += num_steps;
  }
};

// Belongs to one Explainer. From the beginning of a step to that of the next one all who wait are held for the same cause, but those that
// were passed over for one of their own.
class WaitClock {
 public:
  // A step begins: what the last one said counts until now. Returns how long that was.
  double step_begins(double now_s) {
    const double elapsed_s = now_s > last_s_ ? now_s - last_s_ : 0.0;
    sums_.add(held_, elapsed_s, 1);
    last_s_ = now_s;
    last_held_ = held_;
    held_ = EventCause::none;
    front_ = {};
    return elapsed_s;
  }
  void held(EventCause cause, RequestId front) {
    held_ = cause;
    front_ = front;
  }

  [[nodiscard]] const WaitSums& sums() const { return sums_; }
  [[nodiscard]] double last_step_s() const { return last_s_; }
  [[nodiscard]] EventCause cause() const { return held_; }            // since the last step began
  [[nodiscard]] EventCause last_cause() const { return last_held_; }  // in the step before
  [[nodiscard]] RequestId front() const { return front_; }

 private:
  WaitSums sums_;
  double last_s_ = 0.0;
  EventCause held_ = EventCause::none, last_held_ = EventCause::none;
  RequestId front_{};
};

}  // namespace quire
