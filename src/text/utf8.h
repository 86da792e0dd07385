#pragma once
// Functions for UTF-8 texts. quire/text/utf8_repair.h repairs a text that arrives in parts.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "quire/text/utf8_repair.h"

namespace quire {

[[nodiscard]] bool is_valid_utf8(std::string_view text);
[[nodiscard]] std::string repair_utf8(std::string_view text);

// Returns the length in bytes of the character that begins at text[at]. `text` must be valid UTF-8.
[[nodiscard]] inline std::size_t utf8_char_length(std::string_view text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

// Returns the index of the first byte of the character that ends just before text[end]; `end` > 0. In invalid text, returns an index before
// `end`.
[[nodiscard]] std::size_t previous_character(std::string_view text, std::size_t end);
// Returns the number of code points in a valid text.
[[nodiscard]] std::size_t count_characters(std::string_view text);

// Returns the character at text[at] and moves `at` after the character. `text` must be valid UTF-8.
[[nodiscard]] char32_t next_code_point(std::string_view text, std::size_t& at);
void append_utf8(char32_t code_point, std::string& out);

}  // namespace quire
