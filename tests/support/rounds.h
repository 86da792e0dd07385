#pragma once
// Scales the number of rounds of random tests.
#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace quire {

// Returns `all`, or QUIRE_TEST_ROUNDS percent of it, at least one. ./dev test uses 20 for costly tests; --all runs all rounds.
inline std::uint64_t rounds_of(std::uint64_t all) {
  const char* percent = std::getenv("QUIRE_TEST_ROUNDS");
  return percent == nullptr ? all : std::max<std::uint64_t>(1, all * std::strtoull(percent, nullptr, 10) / 100);
}

// Returns whether a test with several long runs plays all of them, or only the run with default settings.
inline bool plays_all() {
  return rounds_of(100) >= 100;
}

}  // namespace quire
