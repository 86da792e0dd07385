#pragma once
// Functions for texts as in Python: a text is a sequence of code points, stored as UTF-8. A byte that is not valid UTF-8 counts as one
// character.
#include <cstdint>
#include <string>
#include <string_view>

namespace quire::jinja {

// Returns the code point at `position` and moves `position` after it; position < text.size().
char32_t next_code_point(std::string_view text, std::size_t& position);

// Implements len(text).
std::size_t count_code_points(std::string_view text);
// Returns the byte offset of the code point with this index, or text.size().
std::size_t byte_offset(std::string_view text, std::size_t index);

// Implements str.isspace for one character.
bool is_space(char32_t code_point);
bool is_printable(char32_t code_point);
bool is_cased(char32_t code_point);
// Implement str.isalpha, isdecimal, isdigit and isnumeric for one character. Unlike in Python, numerals that are letters (CJK) are not
// numeric.
bool is_alpha(char32_t code_point);
bool is_decimal(char32_t code_point);
bool is_digit(char32_t code_point);
bool is_numeric(char32_t code_point);
char32_t to_upper(char32_t code_point);
char32_t to_title(char32_t code_point);
char32_t to_lower(char32_t code_point);

// Implement str.lstrip() and str.rstrip() without arguments, which strip Unicode white space.
std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);

// Convert the case of each character to a single character. Unlike in Python, "ß" is therefore not changed.
std::string upper(std::string_view text);
std::string lower(std::string_view text);

// Implements markupsafe.escape.
std::string escape_html(std::string_view text);

}  // namespace quire::jinja
