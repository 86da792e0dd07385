#pragma once
// UTF-8 that may be broken, made whole as bytes.decode("utf-8", errors="replace") of Python does: one U+FFFD per longest part that could
// have begun a character (Unicode, chapter 3.9, table 3-7).
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "quire/base/api.h"

namespace quire {

// Of one text, by one thread at a time.
class QUIRE_API Utf8Repair {
 public:
  // Appends to `out` every character that `bytes` completes; at most 3 bytes are held back.
  void push(std::string_view bytes, std::string& out);
  // Appends U+FFFD if a character was left unfinished.
  void flush(std::string& out);
  [[nodiscard]] std::size_t num_held_bytes() const { return num_held_; }

 private:
  void push_byte(unsigned char byte, std::string& out);

  std::array<char, 4> held_{};
  std::uint8_t num_held_ = 0;
  std::uint8_t length_ = 0;                       // of the character begun
  unsigned char lowest_ = 0x80, highest_ = 0xBF;  // allowed next byte
};

}  // namespace quire
