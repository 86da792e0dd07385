#pragma once
// Writes and reads numbers and texts as bytes: numbers in LEB128, values of fixed size in 8 bytes. Used for records of calls,
// configurations and seams. Readers accept arbitrary bytes: they never read past the end, and the memory they allocate is bounded by the
// size of the input.
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/check.h"

namespace quire {

// The bytes grow without limit, so the caller must take them regularly.
class ByteWriter {
 public:
  void byte(std::uint8_t value) { bytes.push_back(value); }
  void number(std::uint64_t value) {
    if (value < 0x80) return byte(static_cast<std::uint8_t>(value));
    std::array<std::uint8_t, 10> parts;
    std::size_t size = 0;
    for (; value >= 0x80; value >>= 7U) parts[size++] = static_cast<std::uint8_t>(value | 0x80U);
    parts[size++] = static_cast<std::uint8_t>(value);
    bytes.insert(bytes.end(), parts.begin(), parts.begin() + size);
  }
  void fixed(std::uint64_t value) {
    std::array<std::uint8_t, 8> parts;
    for (unsigned i = 0; i < 8; ++i) parts[i] = static_cast<std::uint8_t>(value >> (8 * i));
    bytes.insert(bytes.end(), parts.begin(), parts.end());
  }
  // Writes a number of any type, a flag, or an enum of one byte.
  template <class Value>
  void value(Value value) {
    if constexpr (std::is_same_v<Value, double>)
      fixed(std::bit_cast<std::uint64_t>(value));
    else if constexpr (std::is_same_v<Value, bool> || std::is_enum_v<Value>)
      byte(static_cast<std::uint8_t>(value));
    else if constexpr (std::is_signed_v<Value>)  // zigzag encoding: small numbers of either sign are short
      number((static_cast<std::uint64_t>(value) << 1U) ^ (value < 0 ? UINT64_MAX : 0));
    else
      number(value);
  }
  void text(std::string_view value) {
    number(value.size());
    bytes.insert(bytes.end(), value.begin(), value.end());
  }

  std::vector<std::uint8_t> bytes;
};

// Reads arbitrary bytes, for example from files and other processes. After a failure it returns zeros and empty texts. It never reads past
// the end, and the memory it allocates is bounded by the size of the input. Callers check failed() once at the end. If it returns true,
// they must not use the values.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  [[nodiscard]] bool failed() const { return failed_; }
  [[nodiscard]] bool at_end() const { return at_ == bytes_.size(); }
  [[nodiscard]] std::size_t position() const { return at_; }
  void fail() { failed_ = true; }

  std::uint8_t byte() {
    if (failed_ || at_end()) failed_ = true;
    return failed_ ? std::uint8_t{0} : bytes_[at_++];
  }
  std::uint64_t number() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const std::uint64_t part = byte();
      if (shift == 63 && part > 1) break;
      value |= (part & 0x7FU) << shift;
      if ((part & 0x80U) == 0) return value;
    }
    failed_ = true;
    return 0;
  }
  std::uint64_t fixed() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 8) value |= std::uint64_t{byte()} << shift;
    return value;
  }
  // Reads what ByteWriter::value() has written. For an enum, use choice().
  template <class Value>
  void value(Value& value) {
    if constexpr (std::is_same_v<Value, double>) {
      value = std::bit_cast<double>(fixed());
    } else if constexpr (std::is_same_v<Value, bool>) {
      choice(value, 0, 1);
    } else if constexpr (std::is_signed_v<Value>) {
      const std::uint64_t bits = number();
      const auto whole = static_cast<std::int64_t>((bits >> 1U) ^ ((bits & 1U) != 0 ? UINT64_MAX : 0));
      if (!std::in_range<Value>(whole)) failed_ = true;
      value = static_cast<Value>(whole);
    } else {
      const std::uint64_t whole = number();
      if (!std::in_range<Value>(whole)) failed_ = true;
      value = static_cast<Value>(whole);
    }
  }
  // Reads a value that must be in the range from `first` to `last`.
  template <class Enum>
  void choice(Enum& value, std::uint8_t first, std::uint8_t last) {
    QUIRE_CHECK(first <= last, "the range of values is not empty");
    const std::uint8_t given = byte();
    if (given < first || given > last) failed_ = true;
    value = static_cast<Enum>(given);
  }
  // Reads the number of items that follow. Each item takes at least one byte, so the number is limited by the remaining bytes.
  std::size_t count() {
    const std::uint64_t value = number();
    if (value > bytes_.size() - at_) failed_ = true;
    return failed_ ? 0 : static_cast<std::size_t>(value);
  }
  // Reads a length and as many bytes. Returns a view into the input.
  std::string_view text() {
    const std::size_t size = count();
    const std::span<const std::uint8_t> part = bytes_.subspan(at_, size);
    QUIRE_CHECK(size <= bytes_.size() - at_, "the length is at most the number of bytes that are left");
    at_ += size;
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }

 private:
  std::span<const std::uint8_t> bytes_;
  std::size_t at_ = 0;
  bool failed_ = false;
};

}  // namespace quire
