// Classifies characters as Python does, with utf8proc. All functions are pure. Called by the lexer and the runtime,
// with its filters, tests and methods.
#include "text/template/unicode.h"

#include <utf8proc.h>

#include "text/utf8.h"

namespace quire::jinja {

char32_t next_code_point(std::string_view text, std::size_t& position) {
  const auto lead = static_cast<unsigned char>(text[position]);
  if (lead < 0x80) {
    ++position;
    return lead;
  }
  utf8proc_int32_t code_point = 0;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data() + position);
  const auto used = utf8proc_iterate(bytes, static_cast<utf8proc_ssize_t>(text.size() - position), &code_point);
  if (used <= 0) {
    ++position;
    return U'\uFFFD';
  }
  position += static_cast<std::size_t>(used);
  return static_cast<char32_t>(code_point);
}

std::size_t count_code_points(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t position = 0; position < text.size(); ++count) next_code_point(text, position);
  return count;
}

std::size_t byte_offset(std::string_view text, std::size_t index) {
  std::size_t position = 0;
  for (; index > 0 && position < text.size(); --index) next_code_point(text, position);
  return position;
}

bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool is_cased(char32_t c) {
  return to_upper(c) != c || to_lower(c) != c;
}

namespace {

utf8proc_category_t category_of(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

}  // namespace

bool is_alpha(char32_t c) {
  switch (category_of(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return true;
    default:
      return false;
  }
}

bool is_decimal(char32_t c) {
  return category_of(c) == UTF8PROC_CATEGORY_ND;
}

// Returns whether str.isdigit accepts `c`: decimal digits, superscripts, subscripts and circled digits, but not fractions and Roman
// numerals.
bool is_digit(char32_t c) {
  const auto within = [c](char32_t first, char32_t last) { return c >= first && c <= last; };
  return is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 || within(0x2074, 0x2079) || within(0x2080, 0x2089) ||
         within(0x2460, 0x2468) || within(0x2474, 0x247C) || within(0x2488, 0x2490) || within(0x2776, 0x277E) || within(0x2780, 0x2788) ||
         within(0x278A, 0x2792);
}

bool is_numeric(char32_t c) {
  const utf8proc_category_t category = category_of(c);
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_NO;
}

char32_t to_upper(char32_t c) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}

char32_t to_title(char32_t c) {
  return static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c)));
}

char32_t to_lower(char32_t c) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

std::string_view strip_left(std::string_view text) {
  std::size_t position = 0;
  while (position < text.size()) {
    std::size_t next = position;
    if (!is_space(next_code_point(text, next))) break;
    position = next;
  }
  return text.substr(position);
}

std::string_view strip_right(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0) {
    const std::size_t start = previous_character(text, end);
    std::size_t next = start;
    if (!is_space(next_code_point(text.substr(0, end), next)) || next != end) break;
    end = start;
  }
  return text.substr(0, end);
}

namespace {

std::string map_case(std::string_view text, char32_t (*mapping)(char32_t)) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t position = 0; position < text.size();) append_utf8(mapping(next_code_point(text, position)), out);
  return out;
}

}  // namespace

std::string upper(std::string_view text) {
  return map_case(text, to_upper);
}

std::string lower(std::string_view text) {
  return map_case(text, to_lower);
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

}  // namespace quire::jinja
