#pragma once
// Reads the literals of an expression: numbers and string escapes, by Python's rules.
#include <string>
#include <string_view>

#include "text/template/value.h"

namespace quire::jinja {

struct NumberLiteral {
  std::size_t bytes = 0;  // 0: the number is too large
  Value value;
};

// Reads the number at the start of `text`, which begins with a digit: decimal, 0x, 0o or 0b, with underscores. With `allow_real` it may
// have a fraction or an exponent.
NumberLiteral read_number(std::string_view text, bool allow_real);

// Resolves the escapes in a string literal. `text` is the literal without quotes. Throws Failure.
std::string unescape(std::string_view text, int line);

}  // namespace quire::jinja
