#pragma once
// A clock for tests and simulations that advances only when a thread sets `now`. Any thread may set it.
#include <atomic>

#include "quire/base/clock.h"

namespace quire {

class ManualClock final : public Clock {
 public:
  explicit ManualClock(double start_s = 0.0) : now(start_s) {}
  [[nodiscard]] double now_s() const override { return now; }
  std::atomic<double> now;  // s
};

}  // namespace quire
