#pragma once
// Wakes a thread that waits in poll(). The thread polls descriptor() for POLLIN, and calls taken() before it looks for work.
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"

namespace quire {

// Any thread may call the functions.
class WakeEvent {
 public:
  WakeEvent() { QUIRE_CHECK(descriptor_ >= 0, "a file descriptor for the eventfd is available"); }
  ~WakeEvent() { close(descriptor_); }
  WakeEvent(const WakeEvent&) = delete;
  WakeEvent& operator=(const WakeEvent&) = delete;

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
