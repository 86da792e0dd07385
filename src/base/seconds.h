#pragma once
#include <chrono>

namespace quire {

// Converts seconds to a duration of the steady clock. Options and statistics count seconds in doubles; deadlines are times of that clock.
inline std::chrono::steady_clock::duration steady_seconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace quire
