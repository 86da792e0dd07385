#pragma once
// Words on UTF-8 texts; quire/text/utf8_repair.h makes broken ones whole.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "quire/text/utf8_repair.h"

namespace quire {

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
