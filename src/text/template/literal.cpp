// Reads numbers and strings of a template by Python's rules. Called by the lexer. Rejects what Python rejects, and also numbers that do not
// fit 128 bits.
#include "text/template/literal.h"

#include <fmt/format.h>

#include <charconv>

#include "text/template/failure.h"
#include "text/utf8.h"

namespace quire::jinja {
namespace {

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

// Returns the length of the match of (_?digit)* in this base. With `digit_first`, matches digit(_?digit)*.
std::size_t digits_length(std::string_view text, int base, bool digit_first) {
  std::size_t end = 0;
  if (digit_first && (text.empty() || digit_value(text[0]) >= base)) return 0;
  while (end < text.size()) {
    const std::size_t digit = text[end] == '_' ? end + 1 : end;
    if (digit >= text.size() || digit_value(text[digit]) >= base) break;
    end = digit + 1;
  }
  return end;
}

std::size_t exponent_length(std::string_view text) {
  if (text.empty() || (text[0] != 'e' && text[0] != 'E')) return 0;
  const std::size_t sign = text.size() > 1 && (text[1] == '+' || text[1] == '-') ? 2 : 1;
  const std::size_t digits = digits_length(text.substr(std::min(sign, text.size())), 10, true);
  return digits == 0 ? 0 : sign + digits;
}

// Returns the length of the real number at the start of `text`, or 0 if the text starts with an integer.
std::size_t real_length(std::string_view text) {
  std::size_t end = digits_length(text, 10, true);
  std::size_t fraction = 0;
  if (text.substr(end).starts_with('.')) {
    fraction = digits_length(text.substr(end + 1), 10, true);
    if (fraction > 0) ++fraction;
  }
  const std::size_t exponent = exponent_length(text.substr(end + fraction));
  return fraction + exponent == 0 ? 0 : end + fraction + exponent;
}

std::string without_underscores(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (c != '_') out.push_back(c);
  return out;
}

NumberLiteral read_integer(std::string_view text, std::size_t prefix, std::size_t bytes, int base) {
  Int value = 0;
  for (const char c : text.substr(prefix, bytes - prefix)) {
    if (c == '_') continue;
    if (__builtin_mul_overflow(value, Int{base}, &value) || __builtin_add_overflow(value, Int{digit_value(c)}, &value)) return {};
  }
  return {bytes, Value(value)};
}

int base_of(std::string_view text) {
  if (text.size() < 2 || text[0] != '0') return 10;
  switch (text[1] | 0x20) {
    case 'x':
      return 16;
    case 'o':
      return 8;
    case 'b':
      return 2;
    default:
      return 10;
  }
}

}  // namespace

NumberLiteral read_number(std::string_view text, bool allow_real) {
  if (const std::size_t bytes = allow_real ? real_length(text) : 0) {
    const std::string digits = without_underscores(text.substr(0, bytes));
    double value = 0;
    if (std::from_chars(digits.data(), digits.data() + digits.size(), value).ec != std::errc()) return {};
    return {bytes, Value(value)};
  }
  if (const int base = base_of(text); base != 10) {
    if (const std::size_t digits = digits_length(text.substr(2), base, false)) return read_integer(text, 2, digits + 2, base);
  }
  std::size_t bytes = digits_length(text, 10, true);
  if (text[0] == '0') {  // "012" is invalid in Python: the number ends after the zeros
    bytes = 1;
    while (text.substr(bytes).starts_with('0') || text.substr(bytes).starts_with("_0")) bytes += text[bytes] == '_' ? 2 : 1;
  }
  return read_integer(text, 0, bytes, 10);
}

namespace {

char simple_escape(char c) {
  switch (c) {
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case 'r':
      return '\r';
    case 'a':
      return '\a';
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'v':
      return '\v';
    case '\\':
    case '\'':
    case '"':
      return c;
    default:
      return '\0';
  }
}

std::size_t hex_digits(char c) {
  return c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
}

// Returns the character of \xhh, \uhhhh or \Uhhhhhhhh; `text` starts after the letter.
char32_t read_hex(std::string_view text, std::size_t digits, int line) {
  if (text.size() < digits) stop(ErrorCode::invalid_argument, line, "a string's escape is cut short");
  char32_t value = 0;
  for (const char c : text.substr(0, digits)) {
    if (digit_value(c) > 15) stop(ErrorCode::invalid_argument, line, "a string's escape has a digit that is not hexadecimal");
    value = value * 16 + static_cast<char32_t>(digit_value(c));
  }
  if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
    stop(ErrorCode::unsupported, line, "a string's escape names no character that UTF-8 can write");
  return value;
}

char32_t read_octal(std::string_view text, std::size_t& position) {
  char32_t value = 0;
  for (int i = 0; i < 3 && position < text.size() && digit_value(text[position]) < 8; ++i, ++position)
    value = value * 8 + static_cast<char32_t>(digit_value(text[position]));
  return value;
}

// Appends the character of one escape. Moves `position` from the character after the backslash to the end of the escape.
void append_escape(std::string& out, std::string_view text, std::size_t& position, int line) {
  const char c = text[position];
  if (const char simple = simple_escape(c)) {
    out.push_back(simple);
    ++position;
  } else if (const std::size_t digits = hex_digits(c)) {
    append_utf8(read_hex(text.substr(position + 1), digits, line), out);
    position += 1 + digits;
  } else if (digit_value(c) < 8) {
    append_utf8(read_octal(text, position), out);
  } else if (c == '\n') {
    ++position;
  } else if (c == 'N') {
    stop(ErrorCode::unsupported, line, "string escape '\\N{...}' is not supported");
  } else {
    out.push_back('\\');
  }
}

}  // namespace

std::string unescape(std::string_view text, int line) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t position = 0; position < text.size();) {
    if (text[position] != '\\' || position + 1 == text.size()) {
      out.push_back(text[position++]);
      continue;
    }
    append_escape(out, text, ++position, line);
  }
  return out;
}

}  // namespace quire::jinja
