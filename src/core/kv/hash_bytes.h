#pragma once
// Appends numbers to bytes in a given order of bytes.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace quire {

inline std::span<const std::uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

template <std::size_t kBytes>
std::array<std::uint8_t, kBytes> little_endian(std::uint64_t value) {
  std::array<std::uint8_t, kBytes> bytes;
  for (std::size_t i = 0; i < kBytes; ++i) {
    bytes[i] = static_cast<std::uint8_t>(value >> (8 * i));
  }
  return bytes;
}

template <std::size_t kBytes>
std::array<std::uint8_t, kBytes> big_endian(std::uint64_t value) {
  auto bytes = little_endian<kBytes>(value);
  std::ranges::reverse(bytes);
  return bytes;
}

// Writes into storage that only grows: one bounds check per piece instead of one per byte, and no allocation once it is large enough.
class ByteWriter {
 public:
  // Takes over the storage of `out`; finish() cuts it to what was written.
  explicit ByteWriter(std::vector<std::uint8_t>& out) : out_(out) { out_.resize(std::max<std::size_t>(out_.capacity(), 256)); }
  ByteWriter(const ByteWriter&) = delete;
  ByteWriter& operator=(const ByteWriter&) = delete;

  [[nodiscard]] std::size_t size() const { return size_; }

  void put(std::uint8_t byte) {
    ensure(1);
    out_[size_++] = byte;
  }
  void put(std::span<const std::uint8_t> bytes) {
    ensure(bytes.size());
    std::ranges::copy(bytes, out_.begin() + static_cast<std::ptrdiff_t>(size_));
    size_ += bytes.size();
  }
  // Bytes written before, at `position`.
  void overwrite(std::size_t position, std::span<const std::uint8_t> bytes) {
    std::ranges::copy(bytes, out_.begin() + static_cast<std::ptrdiff_t>(position));
  }
  void erase(std::size_t position, std::size_t count) {
    const auto first = out_.begin() + static_cast<std::ptrdiff_t>(position);
    std::copy(first + static_cast<std::ptrdiff_t>(count), out_.begin() + static_cast<std::ptrdiff_t>(size_), first);
    size_ -= count;
  }
  void finish() { out_.resize(size_); }

 private:
  void ensure(std::size_t count) {
    if (out_.size() - size_ < count) [[unlikely]] {
      out_.resize(2 * (size_ + count));
    }
  }

  std::vector<std::uint8_t>& out_;
  std::size_t size_ = 0;
};

}  // namespace quire
