#pragma once
// Writes a valid checksum into a checkpoint whose bytes a test has changed.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/schedule/checkpoint/checksum.h"

namespace quire::test {

inline constexpr std::size_t kSumBytes = 8;

inline void seal(std::vector<std::uint8_t>& bytes) {
  const std::size_t end = bytes.size() - kSumBytes;
  const std::uint64_t sum = checksum(std::span(bytes).first(end));
  for (unsigned i = 0; i < kSumBytes; ++i) bytes[end + i] = static_cast<std::uint8_t>(sum >> (8 * i));
}

}  // namespace quire::test
