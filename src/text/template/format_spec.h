#pragma once
// Formats values as Python does: format specifications ("{:>8.2f}"), str.format and the operator %.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "text/template/runtime.h"

namespace quire::jinja {

// A parsed specification: [[fill]align][sign][#][0][width][grouping][.precision][type]
struct FormatSpec {
  std::string fill = " ";
  char align = '\0';  // '<', '>', '^', '='; '\0': the default of the type
  char sign = '-';    // '-', '+', ' '
  bool alternate = false;
  char grouping = '\0';
  std::int64_t width = 0;
  std::optional<std::int64_t> precision;
  char type = '\0';
};

// Pads `text` to the specification's width. Uses `align` if the specification has no alignment. Charges the budget for the width.
[[nodiscard]] std::string pad(Runtime& runtime, std::string_view text, const FormatSpec& spec, char align);
// Centers `text` as str.center does. If both the width and the number of fill characters are odd, the extra one is on the left. (The
// alignment '^' puts it on the right.)
[[nodiscard]] std::string centered(Runtime& runtime, std::string_view text, const FormatSpec& spec);
// Return the sign, prefix and digits of a number, padded to the width.
[[nodiscard]] std::string format_integer(Runtime& runtime, Int number, const FormatSpec& spec);
[[nodiscard]] std::string format_real(Runtime& runtime, double number, const FormatSpec& spec);

// Implements str.format or, with `mapping`, str.format_map.
[[nodiscard]] Value format_fields(Runtime& runtime, std::string_view format, const Arguments& arguments, const Value* mapping = nullptr);

}  // namespace quire::jinja
