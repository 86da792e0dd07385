// Implements methods of str that pad to a width or change the case of letters. Runs on the render's thread. Templates choose widths, so
// they are charged before any text is produced.
#include <string>
#include <utility>

#include "text/template/builtin.h"
#include "text/template/format_spec.h"
#include "text/template/unicode.h"
#include "text/utf8.h"

namespace quire::jinja {
namespace {

template <char align>
Value justify(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(runtime, "a method that fills up to a width", arguments, {"width", "fillchar"});
  bound.need(0);
  FormatSpec spec;
  spec.width = bound.integer(0, 0);
  spec.fill = bound.text(1, " ");
  if (count_code_points(spec.fill) != 1) runtime.fail("The fill character must be exactly one character long");
  return runtime.text(align == '^' ? centered(runtime, self.text(), spec) : pad(runtime, self.text(), spec, align), self.is_markup());
}

Value zero_fill(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(runtime, "method 'zfill'", arguments, {"width"});
  bound.need(0);
  std::string_view text = self.text();
  const bool is_signed = text.starts_with('+') || text.starts_with('-');
  FormatSpec spec;
  spec.fill = "0";
  spec.width = bound.integer(0, 0) - (is_signed ? 1 : 0);
  const std::string filled = pad(runtime, text.substr(is_signed ? 1 : 0), spec, '>');
  return runtime.text(std::string(text.substr(0, is_signed ? 1 : 0)) + filled, self.is_markup());
}

std::string swap_case(std::string_view text) {
  std::string out;
  for (std::size_t position = 0; position < text.size();) {
    const char32_t c = next_code_point(text, position);
    append_utf8(to_lower(c) != c ? to_lower(c) : to_upper(c), out);
  }
  return out;
}

// Implements str.casefold approximately: U+00DF and U+1E9E become "ss", and all other characters become lower case.
std::string case_fold(std::string_view text) {
  std::string out;
  for (std::size_t position = 0; position < text.size();) {
    const char32_t c = next_code_point(text, position);
    if (c == 0xDF || c == 0x1E9E)
      out += "ss";
    else
      append_utf8(to_lower(c), out);
  }
  return out;
}

template <std::string (*mapping)(std::string_view)>
Value mapped_text(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(runtime, "a case method", arguments, {});
  return runtime.text(mapping(self.text()), self.is_markup());
}

Value expand_tabs(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(runtime, "method 'expandtabs'", arguments, {"tabsize"});
  const std::int64_t size = bound.integer(0, 8);
  std::string out;
  std::int64_t column = 0;
  const std::string_view text = self.text();
  for (std::size_t position = 0; position < text.size();) {
    const std::size_t start = position;
    const char32_t c = next_code_point(text, position);
    if (c == '\t') {
      const std::int64_t spaces = size > 0 ? size - column % size : 0;
      runtime.charge_text(static_cast<std::uint64_t>(spaces) + out.size());
      out.append(static_cast<std::size_t>(spaces), ' ');
      column += spaces;
      continue;
    }
    out += text.substr(start, position - start);
    column = c == '\n' || c == '\r' ? 0 : column + 1;
  }
  return runtime.text(std::move(out), self.is_markup());
}

constexpr Method kLayoutMethods[] = {
    {"ljust", justify<'<'>},
    {"rjust", justify<'>'>},
    {"center", justify<'^'>},
    {"zfill", zero_fill},
    {"swapcase", mapped_text<swap_case>},
    {"casefold", mapped_text<case_fold>},
    {"expandtabs", expand_tabs},
};

}  // namespace

std::span<const Method> layout_methods() {
  return kLayoutMethods;
}

}  // namespace quire::jinja
