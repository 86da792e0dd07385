#pragma once
// A clock that stands still until a thread sets `now`. Any thread may do so.
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
