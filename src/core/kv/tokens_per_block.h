#pragma once
// Converts counts of tokens to counts of blocks. Rounds as Python's // does: down, also below zero.
#include <bit>
#include <cstdint>

#include "base/check.h"

namespace quire {

// Nearly all block sizes are powers of two, and the scheduler converts several times per request and step, so a shift replaces the
// division.
class TokensPerBlock {
 public:
  explicit TokensPerBlock(std::uint32_t size) : size_(size), shift_(std::has_single_bit(size) ? std::countr_zero(size) : -1) {
    QUIRE_CHECK(size > 0, "the block size is positive");
  }

  [[nodiscard]] std::int64_t size() const { return size_; }
  [[nodiscard]] std::int64_t floor(std::int64_t tokens) const {
    if (shift_ >= 0) [[likely]]
      return tokens >> shift_;
    return tokens >= 0 ? tokens / size_ : -((-tokens + size_ - 1) / size_);
  }
  [[nodiscard]] std::int64_t ceil(std::int64_t tokens) const { return floor(tokens + size_ - 1); }

 private:
  std::int64_t size_;
  int shift_;  // size is 2^shift; -1 if size is not a power of two
};

}  // namespace quire
