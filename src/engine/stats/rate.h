#pragma once
// Measures a recent rate per second. Older amounts decay exponentially. The horizon counts only seconds of the measured work, not elapsed
// time.
#include <cmath>

namespace quire {

class Rate {
 public:
  explicit Rate(double horizon_s) : horizon_s_(horizon_s) {}

  void add(double amount, double seconds) {
    if (seconds <= 0.0) return;
    const double kept = std::exp(-seconds / horizon_s_);
    amount_ = amount_ * kept + amount;
    seconds_ = seconds_ * kept + seconds;
  }
  // Returns the rate; 0 if nothing was added yet.
  [[nodiscard]] double per_second() const { return seconds_ > 0.0 ? amount_ / seconds_ : 0.0; }

 private:
  double horizon_s_;
  double amount_ = 0.0, seconds_ = 0.0;
};

}  // namespace quire
