#pragma once
// The literals of an expression: numbers and string escapes as Python reads them.
#include <string>
#include <string_view>

#include "text/template/value.h"

namespace quire::jinja {

struct NumberLiteral {
  std::size_t bytes = 0;  // 0: does not fit
  Value value;
};

// The number that `text` starts with (it starts with a digit): decimal, 0x, 0o, 0b, underscores, and if `allow_real` a fraction or
// exponent.
NumberLiteral read_number(std::string_view text, bool allow_real);

// Resolves the escapes of a string literal's inside. Throws Failure.
std::string unescape(std::string_view text, int line);

}  // namespace quire::jinja
