#pragma once
// Saturating arithmetic on sizes in bytes, so that the cache of an absurdly large spec is reported as too large.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/check.h"

namespace quire {

inline constexpr std::uint64_t kMostBytes = std::numeric_limits<std::uint64_t>::max();

constexpr std::uint64_t saturating_product(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? kMostBytes : product;
}

constexpr std::uint64_t saturating_sum(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? kMostBytes : sum;
}

constexpr std::uint64_t divide_up(std::uint64_t a, std::uint64_t b) {
  QUIRE_CHECK(b > 0, "the divisor is positive");
  return a / b + (a % b == 0 ? 0 : 1);
}

}  // namespace quire
