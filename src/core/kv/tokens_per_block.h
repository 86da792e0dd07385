#pragma once
// Counts of tokens in counts of blocks, rounded as Python's // does: down, below zero too.
#include <bit>
#include <cstdint>

#include "base/check.h"

namespace quire {

// Nearly all block sizes are powers of two, and the scheduler converts several times per request and step: a shift instead of a division.
class TokensPerBlock {
 public:
  explicit TokensPerBlock(std::uint32_t size) : size_(size), shift_(std::has_single_bit(size) ? std::countr_zero(size) : -1) {
    QUIRE_CHECK(size > 0, "a block has tokens");
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
  int shift_;  // size 2^shift; -1: no power of two
};

}  // namespace quire
