// Implements filters for text and numbers. Runs on the render's thread, and charges its budget for the text that it produces. Characters
// are code points, as in Python.
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>

#include "text/template/builtin.h"
#include "text/template/json_values.h"
#include "text/template/python_text.h"
#include "text/template/runtime.h"
#include "text/template/unicode.h"
#include "text/utf8.h"

namespace quire::jinja {
namespace {

// Implements jinja2's soft_str: returns text unchanged, so that Markup stays Markup, and converts other values to text.
Value soft(Runtime& runtime, const Value& value) {
  return value.is_text() ? value : runtime.text(runtime.str(value));
}

Value trim(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "filter 'trim'", arguments, {"chars"});
  const Value text = soft(runtime, value);
  return runtime.text(std::string(strip(text.text(), bound.get(0), runtime, true, true)), text.is_markup());
}

template <std::string (*mapping)(std::string_view)>
Value mapped(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "a case filter", arguments, {});
  const Value text = soft(runtime, value);
  return runtime.text(mapping(text.text()), text.is_markup());
}

// Implements jinja2's filter title: a word starts after white space, "-" and opening brackets.
std::string title_words(std::string_view text) {
  std::string out;
  bool start = true;
  for (std::size_t position = 0; position < text.size();) {
    const char32_t c = next_code_point(text, position);
    append_utf8(start ? to_upper(c) : to_lower(c), out);
    start = c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || is_space(c);
  }
  return out;
}

Value replace(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "filter 'replace'", arguments, {"old", "new", "count"});
  const std::string from = runtime.str(bound.need(0));
  const std::string to = runtime.str(bound.need(1));
  const bool all = bound.get(2) == nullptr || bound.get(2)->is<None>();
  return replace_text(runtime, runtime.str(value), from, to, all ? -1 : bound.integer(2, -1));
}

Value string(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "filter 'string'", arguments, {});
  return soft(runtime, value);
}

Value safe(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "filter 'safe'", arguments, {});
  return runtime.text(runtime.str(value), true);
}

Value escape(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "filter 'escape'", arguments, {});
  return value.is_markup() ? value : runtime.text(escape_html(runtime.str(value)), true);
}

Value indent(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "filter 'indent'", arguments, {"width", "first", "blank"});
  runtime.require_defined(value);
  if (!value.is_text()) runtime.fail(fmt::format("filter 'indent' needs a string, not {}", type_name(value)));
  const Value* width = bound.get(0);
  const bool spaces = width == nullptr || !width->is_text();
  const std::int64_t count = spaces ? std::max<std::int64_t>(bound.integer(0, 4), 0) : 0;
  runtime.charge_text(static_cast<std::uint64_t>(count));
  const std::string indention = spaces ? std::string(static_cast<std::size_t>(count), ' ') : std::string(width->text());
  const bool blank = bound.flag(2, false);
  std::string out = bound.flag(1, false) ? indention : "";
  bool first = true;
  const std::string source = std::string(value.text()) + "\n";
  for (const std::string_view line : split_lines(source, false)) {
    if (!first) {
      out += '\n';
      if (blank || !line.empty()) out += indention;
    }
    first = false;
    out += line;
    if (out.size() > runtime.options().limits.max_output_bytes) runtime.charge_text(out.size());
  }
  return runtime.text(std::move(out), value.is_markup());
}

Value fallback(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "filter 'default'", arguments, {"default_value", "boolean"});
  const bool absent = value.is<Undefined>() || (bound.flag(1, false) && !truth(value));
  if (!absent) return value;
  return bound.get(0) != nullptr ? *bound.get(0) : make_text("");
}

Value format(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Value text = soft(runtime, value);
  if (text.is_markup()) runtime.unsupported("filter 'format' on a safe string");
  if (arguments.named.empty())
    return runtime.text(format_percent(runtime, text.text(), runtime.list(arguments.positional, ListKind::tuple)));
  if (!arguments.positional.empty()) runtime.fail("can't handle positional and keyword arguments at the same time");
  Dict& named = runtime.new_dict();
  for (const auto& [name, argument] : arguments.named) runtime.set(named, make_text(name), argument);
  return runtime.text(format_percent(runtime, text.text(), Value(&named)));
}

constexpr Filter kTextFilters[] = {
    {"trim", trim},
    {"upper", mapped<upper>},
    {"lower", mapped<lower>},
    {"capitalize", mapped<capitalize>},
    {"title", mapped<title_words>},
    {"replace", replace},
    {"string", string},
    {"safe", safe},
    {"escape", escape},
    {"e", escape},
    {"indent", indent},
    {"tojson", filter_tojson},
    {"default", fallback},
    {"d", fallback},
    {"format", format},
};

int value_of_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  return c >= 'A' && c <= 'Z' ? c - 'A' + 10 : 99;
}

// Parses an integer like Python's int(text, base).
std::optional<Int> parse_integer(std::string_view text, int base) {
  text = strip_left(strip_right(text));
  const bool negative = text.starts_with('-');
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  const int prefix = text.size() > 2 && text[0] == '0' ? (text[1] | 0x20) : 0;
  const bool has_prefix = (base == 16 && prefix == 'x') || (base == 8 && prefix == 'o') || (base == 2 && prefix == 'b');
  if (has_prefix) text.remove_prefix(2);
  if (text.empty()) return std::nullopt;
  Int value = 0;
  char before = has_prefix ? '0' : '_';
  for (const char c : text) {
    if (c == '_' ? before == '_' : value_of_digit(c) >= base) return std::nullopt;
    before = c;
    if (c == '_') continue;
    if (__builtin_mul_overflow(value, Int{base}, &value) || __builtin_add_overflow(value, Int{value_of_digit(c)}, &value))
      return std::nullopt;
  }
  if (before == '_') return std::nullopt;
  return negative ? -value : value;
}

// Parses a number like Python's float(text).
std::optional<double> parse_real(std::string_view text) {
  text = strip_left(strip_right(text));
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  const auto is_digit_at = [&](std::size_t at) { return at < text.size() && text[at] >= '0' && text[at] <= '9'; };
  std::string digits;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '(') return std::nullopt;  // not valid in Python, but from_chars accepts "nan(1)"
    if (text[i] != '_')
      digits += text[i];
    else if (i == 0 || !is_digit_at(i - 1) || !is_digit_at(i + 1))
      return std::nullopt;
  }
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error == std::errc::invalid_argument || end != digits.data() + digits.size()) return std::nullopt;
  return error == std::errc::result_out_of_range ? std::strtod(digits.c_str(), nullptr) : value;
}

std::optional<Int> truncate(double number) {
  if (!std::isfinite(number) || std::abs(number) > 1e36) return std::nullopt;
  return static_cast<Int>(number);
}

Value to_integer(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "filter 'int'", arguments, {"default", "base"});
  runtime.require_defined(value);
  const std::int64_t base = bound.integer(1, 10);
  if (base < 2 || base > 36) runtime.unsupported("filter 'int' with this base");
  const Value otherwise = bound.get(0) != nullptr ? *bound.get(0) : Value(Int{0});
  if (value.is_int()) return Value(value.integer());
  std::optional<Int> result;
  if (value.is<double>()) result = truncate(value.as<double>());
  if (value.is_text()) {
    result = parse_integer(value.text(), static_cast<int>(base));
    const auto real = result ? std::nullopt : parse_real(value.text());
    if (real) result = truncate(*real);
  }
  return result ? Value(*result) : otherwise;
}

Value to_real(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "filter 'float'", arguments, {"default"});
  runtime.require_defined(value);
  if (value.is_number()) return Value(value.number());
  const auto real = value.is_text() ? parse_real(value.text()) : std::nullopt;
  if (real) return Value(*real);
  return bound.get(0) != nullptr ? *bound.get(0) : Value(0.0);
}

Value absolute(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "filter 'abs'", arguments, {});
  runtime.require_defined(value);
  if (value.is<double>()) return Value(std::abs(value.as<double>()));
  if (!value.is_int()) runtime.fail(fmt::format("bad operand type for abs(): '{}'", type_name(value)));
  return value.integer() < 0 ? runtime.negate(value) : Value(value.integer());
}

// Rounds the exact value of `number` to the nearest decimal; ties go to even, as in Python's round().
double round_common(double number, int precision) {
  return std::strtod(fmt::format("{:.{}f}", number, precision).c_str(), nullptr);
}

Value round_number(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "filter 'round'", arguments, {"precision", "method"});
  runtime.require_defined(value);
  if (!value.is_number()) runtime.fail(fmt::format("filter 'round' needs a number, not {}", type_name(value)));
  const std::int64_t precision = bound.integer(0, 0);
  if (precision < 0 || precision > 15) runtime.unsupported("filter 'round' with this precision");
  const std::string_view method = bound.text(1, "common");
  if (method == "common") {
    if (value.is_int()) return Value(value.integer());
    return Value(round_common(value.as<double>(), static_cast<int>(precision)));
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return Value(std::ceil(value.number() * scale) / scale);
  if (method == "floor") return Value(std::floor(value.number() * scale) / scale);
  runtime.fail("filter 'round': method must be common, ceil or floor");
}

constexpr Filter kNumberFilters[] = {{"int", to_integer}, {"float", to_real}, {"abs", absolute}, {"round", round_number}};

}  // namespace

std::span<const Filter> text_filters() {
  return kTextFilters;
}

std::span<const Filter> number_filters() {
  return kNumberFilters;
}

}  // namespace quire::jinja
