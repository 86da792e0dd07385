#pragma once
// A small random number generator with a seed (SplitMix64). Equal seeds give equal numbers on every platform, unlike the distributions of
// the standard library.
#include <cstdint>

namespace quire {

// Not suitable for secrets. Used by one thread. A copy of the object draws the same numbers again.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    state_ += 0x9E3779B97F4A7C15ULL;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }

  // Returns a number that is uniformly distributed in [0, bound); bound > 0. The bias is below 2^-32 for bounds below 2^32.
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }
  // Returns a number that is uniformly distributed in [low, high].
  std::uint64_t between(std::uint64_t low, std::uint64_t high) { return low + below(high - low + 1); }
  bool chance(double probability) { return unit() < probability; }
  // Returns a number that is uniformly distributed in [0, 1).
  double unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

 private:
  std::uint64_t state_;
};

}  // namespace quire
