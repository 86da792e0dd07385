#pragma once
// Sums up how long the queue was held, by cause. A waiting request notes the sums when it arrives and when it leaves.
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
    QUIRE_CHECK(static_cast<std::size_t>(cause) < kNumEventCauses, "the cause is in range");
    seconds[static_cast<std::size_t>(cause)] += s;
    steps[static_cast<std::size_t>(cause)] += num_steps;
  }
};

// Belongs to one Explainer. From one step to the next, all waiting requests are held for the same cause, except requests that were passed
// over for another cause.
class WaitClock {
 public:
  // Called when a step begins. The time since the previous step counts for the cause that it reported. Returns that time, in s.
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
    front_ = last_front_ = front;
    ++num_holds_;
  }

  [[nodiscard]] const WaitSums& sums() const { return sums_; }
  [[nodiscard]] double last_step_s() const { return last_s_; }
  [[nodiscard]] EventCause cause() const { return held_; }              // since the last step began
  [[nodiscard]] EventCause last_cause() const { return last_held_; }    // in the step before
  [[nodiscard]] RequestId front() const { return front_; }              // since the last step began; 0: no request is the reason
  [[nodiscard]] RequestId last_front() const { return last_front_; }    // in the newest step that held the queue
  [[nodiscard]] std::uint64_t num_holds() const { return num_holds_; }  // steps that held the queue

 private:
  WaitSums sums_;
  double last_s_ = 0.0;
  EventCause held_ = EventCause::none, last_held_ = EventCause::none;
  RequestId front_{}, last_front_{};
  std::uint64_t num_holds_ = 0;
};

}  // namespace quire
