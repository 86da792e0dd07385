#pragma once
// A callback that long-running work calls regularly, so that its caller can pause or cancel the work.
#include <functional>

namespace quire {

// A function that is called on the working thread between two pieces of work. It may block, and it may throw. If it throws, the work must
// have no lasting effect.
using CancellationPoint = std::function<void()>;

// Calls `*cancellation` unless it is null or empty, and lets its exceptions through.
inline void pass(const CancellationPoint* cancellation) {
  if (cancellation != nullptr && *cancellation) (*cancellation)();
}

}  // namespace quire
