#pragma once
// Text as Python sees it: a sequence of code points, stored as UTF-8. A byte that is no valid UTF-8 counts as one character.
#include <cstdint>
#include <string>
#include <string_view>

namespace quire::jinja {

// The code point at `position`, which moves behind it. position < text.size().
char32_t next_code_point(std::string_view text, std::size_t& position);

// len(text)
std::size_t count_code_points(std::string_view text);
// The byte offset of the code point with this index, or text.size().
std::size_t byte_offset(std::string_view text, std::size_t index);

// str.isspace of one character.
bool is_space(char32_t code_point);
bool is_printable(char32_t code_point);
bool is_cased(char32_t code_point);
char32_t to_upper(char32_t code_point);
char32_t to_lower(char32_t code_point);

// str.strip() and its halves, without arguments: Unicode white space.
std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);

// Simple (one to one) case mapping: "ß" stays as it is, unlike in Python.
std::string upper(std::string_view text);
std::string lower(std::string_view text);

// markupsafe.escape
std::string escape_html(std::string_view text);

}  // namespace quire::jinja
