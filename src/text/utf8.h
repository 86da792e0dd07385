#pragma once
// UTF-8 that may be broken, made whole as bytes.decode("utf-8", errors="replace") of Python does: one U+FFFD per longest part that could
// have begun a character (Unicode, chapter 3.9, table 3-7).
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace quire {

class Utf8Repair {
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

[[nodiscard]] bool is_valid_utf8(std::string_view text);
[[nodiscard]] std::string repair_utf8(std::string_view text);

// Length in bytes of the character that begins at text[at]; `text` must be valid.
[[nodiscard]] inline std::size_t utf8_char_length(std::string_view text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

// Where the character begins that ends before text[end]; `end` > 0. In broken text: some byte before `end`.
[[nodiscard]] std::size_t previous_character(std::string_view text, std::size_t end);
// Code points of valid text.
[[nodiscard]] std::size_t count_characters(std::string_view text);

// The character at text[at], which moves behind it; `text` must be valid.
[[nodiscard]] char32_t next_code_point(std::string_view text, std::size_t& at);
void append_utf8(char32_t code_point, std::string& out);

}  // namespace quire
