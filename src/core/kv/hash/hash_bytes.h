#pragma once
// Byte order of numbers, and a reusable byte buffer.
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "base/check.h"

namespace quire {

inline std::span<const std::uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

template <std::size_t kBytes>
std::array<std::uint8_t, kBytes> little_endian(std::uint64_t value) {
  std::array<std::uint8_t, kBytes> bytes;
  for (std::size_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<std::uint8_t>(value >> (8 * i));
  return bytes;
}

template <std::size_t kBytes>
std::array<std::uint8_t, kBytes> big_endian(std::uint64_t value) {
  auto bytes = little_endian<kBytes>(value);
  std::ranges::reverse(bytes);
  return bytes;
}

// A byte buffer that only grows: one capacity check per call, and no allocation once it is large enough. Each hash function reuses one
// buffer for every block, because every prompt waits for its hashes.
class HashBytes {
 public:
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::span<const std::uint8_t> view() const { return std::span(storage_).first(size_); }
  void clear() { size_ = 0; }

  void put(std::uint8_t byte) {
    ensure(1);
    storage_[size_++] = byte;
  }
  void put(std::span<const std::uint8_t> bytes) {
    ensure(bytes.size());
    std::memcpy(end(), bytes.data(), bytes.size());
    size_ += bytes.size();
  }
  // Appends the lowest `count` <= 8 bytes of `word`, lowest byte first. The work does not depend on `count`, so numbers of mixed sizes
  // cause no mispredicted branches.
  void put_low_bytes(std::uint64_t word, std::size_t count) {
    static_assert(std::endian::native == std::endian::little);
    ensure(sizeof word);
    QUIRE_CHECK(count <= sizeof word, "at most the 8 bytes of a word are written");
    std::memcpy(end(), &word, sizeof word);
    size_ += count;
  }
  // Overwrites bytes at `position`, which must have been written before.
  void overwrite(std::size_t position, std::span<const std::uint8_t> bytes) {
    QUIRE_CHECK(position + bytes.size() <= size_, "only written bytes are overwritten");
    std::memcpy(storage_.data() + position, bytes.data(), bytes.size());
  }
  void erase(std::size_t position, std::size_t count) {
    QUIRE_CHECK(position + count <= size_, "only written bytes are erased");
    std::memmove(storage_.data() + position, storage_.data() + position + count, size_ - position - count);
    size_ -= count;
  }

 private:
  [[nodiscard]] std::uint8_t* end() { return storage_.data() + size_; }
  void ensure(std::size_t count) {
    if (storage_.size() - size_ < count) [[unlikely]]
      storage_.resize(2 * (size_ + count) + 256);
  }

  std::vector<std::uint8_t> storage_;
  std::size_t size_ = 0;
};

}  // namespace quire
