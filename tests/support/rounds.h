#pragma once
// How many rounds a random test plays.
#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace quire {

// `all`, or the percentage of it that QUIRE_TEST_ROUNDS says, at least one. ./dev test says 20 for the costly ones, --ci 40; --all plays
// all.
inline std::uint64_t rounds_of(std::uint64_t all) {
  const char* percent = std::getenv("QUIRE_TEST_ROUNDS");
  return percent == nullptr ? all : std::max<std::uint64_t>(1, all * std::strtoull(percent, nullptr, 10) / 100);
}

// Whether a test of several long runs plays them all, or only that of the default settings.
inline bool plays_all() {
  return rounds_of(100) >= 100;
}

}  // namespace quire
