#pragma once
#include <chrono>

namespace quire {

// Converts seconds to a duration of the steady clock. Options and statistics use seconds in doubles, and deadlines are times of the steady
// clock.
inline std::chrono::steady_clock::duration steady_seconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace quire
