#pragma once
// Wakes a thread that waits in poll(): it polls descriptor() for POLLIN, and calls taken() before it looks at what it is woken for.
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"

namespace quire {

// Any thread.
class WakeUp {
 public:
  WakeUp() { QUIRE_CHECK(descriptor_ >= 0, "the process has no descriptor left"); }
  ~WakeUp() { close(descriptor_); }
  WakeUp(const WakeUp&) = delete;
  WakeUp& operator=(const WakeUp&) = delete;

  [[nodiscard]] int descriptor() const { return descriptor_; }
  void ring() const { eventfd_write(descriptor_, 1); }
  void taken() const {
    eventfd_t count = 0;
    eventfd_read(descriptor_, &count);
  }

 private:
  const int descriptor_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
};

}  // namespace quire
