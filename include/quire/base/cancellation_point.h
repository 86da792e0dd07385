#pragma once
// A callback that long-running work calls regularly, so that its caller can pause or cancel the work.
#include <functional>

namespace quire {

// Called on the working thread between two pieces of work. It may block, and it may throw. After a throw the work must have no lasting
// effect.
using CancellationPoint = std::function<void()>;

// Calls `*cancellation` if there is one, and lets its exceptions through.
inline void pass(const CancellationPoint* cancellation) {
  if (cancellation != nullptr && *cancellation) (*cancellation)();
}

}  // namespace quire
