#pragma once
// Adds up how long the queue was held, by cause. A waiting request stores the sums when its wait begins and subtracts them when it ends.
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

// Belongs to one Explainer. In each interval between two steps, all waiting requests are held for the same cause, except requests that were
// skipped for a separate cause.
class WaitClock {
 public:
  // Called when a step begins. Adds the time since the previous step to the cause that the previous step reported. Returns this time, in
  // seconds.
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
  [[nodiscard]] EventCause cause() const { return held_; }            // why the queue was held since the last step began
  [[nodiscard]] EventCause last_cause() const { return last_held_; }  // why the queue was held in the previous step
  // The request at the front when the queue was held in this step; 0 if no request is the reason.
  [[nodiscard]] RequestId front() const { return front_; }
  [[nodiscard]] RequestId last_front() const { return last_front_; }    // the request at the front in the newest step that held the queue
  [[nodiscard]] std::uint64_t num_holds() const { return num_holds_; }  // number of steps that held the queue

 private:
  WaitSums sums_;
  double last_s_ = 0.0;
  EventCause held_ = EventCause::none, last_held_ = EventCause::none;
  RequestId front_{}, last_front_{};
  std::uint64_t num_holds_ = 0;
};

}  // namespace quire
