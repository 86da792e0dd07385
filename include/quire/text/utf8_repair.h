#pragma once
// Replaces invalid bytes in UTF-8 text as Python's bytes.decode("utf-8", errors="replace") does: each maximal sequence that could begin a
// character becomes one U+FFFD (Unicode, chapter 3.9, table 3-7).
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "quire/base/api.h"

namespace quire {

// Repairs one text. Used by one thread at a time.
class QUIRE_API Utf8Repair {
 public:
  // Appends to `out` each character that `bytes` completes; holds back at most 3 bytes.
  void push(std::string_view bytes, std::string& out);
  // Appends U+FFFD if the last character is incomplete.
  void flush(std::string& out);
  [[nodiscard]] std::size_t num_held_bytes() const { return num_held_; }

 private:
  void push_byte(unsigned char byte, std::string& out);

  std::array<char, 4> held_{};
  std::uint8_t num_held_ = 0;
  std::uint8_t length_ = 0;                       // bytes of the current character
  unsigned char lowest_ = 0x80, highest_ = 0xBF;  // range of the next byte
};

}  // namespace quire
