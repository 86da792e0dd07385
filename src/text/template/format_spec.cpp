// Implements Python's format specifications (PEP 3101) for template values. Runs on the render's thread. Templates choose widths and
// precisions, so both are checked before any text is produced.
#include "text/template/format_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "text/template/builtin.h"
#include "text/template/unicode.h"
#include "text/utf8.h"

namespace quire::jinja {
namespace {

constexpr std::int64_t kMaxPrecision = 1000;

bool is_align(char c) {
  return c == '<' || c == '>' || c == '^' || c == '=';
}

bool is_decimal(char c) {
  return c >= '0' && c <= '9';
}

// Removes the digits at the start of `text` and returns their value.
std::int64_t take_number(Runtime& runtime, std::string_view& text) {
  std::int64_t number = 0;
  for (; !text.empty() && is_decimal(text.front()); text.remove_prefix(1)) {
    number = number * 10 + (text.front() - '0');
    if (number > std::numeric_limits<std::int32_t>::max()) runtime.fail("Too many decimal digits in format string");
  }
  return number;
}

FormatSpec read_spec(Runtime& runtime, std::string_view text, bool is_text) {
  FormatSpec spec;
  bool has_fill = false;
  std::size_t first = 0;
  if (!text.empty()) next_code_point(text, first);
  if (first > 0 && first < text.size() && is_align(text[first])) {
    has_fill = true;
    spec.fill = text.substr(0, first);
    spec.align = text[first];
    text.remove_prefix(first + 1);
  } else if (!text.empty() && is_align(text.front())) {
    spec.align = text.front();
    text.remove_prefix(1);
  }
  const auto take_one_of = [&](std::string_view set) {
    if (text.empty() || set.find(text.front()) == std::string_view::npos) return '\0';
    const char c = text.front();
    text.remove_prefix(1);
    return c;
  };
  if (const char sign = take_one_of("+- "); sign != '\0') spec.sign = sign;
  spec.alternate = take_one_of("#") != '\0';
  if (!has_fill && take_one_of("0") != '\0') {
    spec.fill = "0";
    if (spec.align == '\0' && !is_text) spec.align = '=';
  }
  spec.width = take_number(runtime, text);
  spec.grouping = take_one_of(",_");
  if (take_one_of(".") != '\0') {
    if (text.empty() || !is_decimal(text.front())) runtime.fail("Format specifier missing precision");
    spec.precision = take_number(runtime, text);
  }
  if (text.size() > 1) runtime.fail("Invalid format specifier");
  if (!text.empty()) spec.type = text.front();
  return spec;
}

std::string grouped(std::string digits, char separator, std::size_t size) {
  if (separator == '\0') return digits;
  const std::size_t whole = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  for (std::size_t at = whole; at > size;) digits.insert(at -= size, 1, separator);
  return digits;
}

std::string repeated(std::string_view text, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += text;
  return out;
}

std::string in_width(Runtime& runtime, std::string_view sign, std::string_view digits, const FormatSpec& spec) {
  if (spec.align != '=') return pad(runtime, std::string(sign).append(digits), spec, '>');
  const auto size = static_cast<std::int64_t>(count_code_points(sign) + count_code_points(digits));
  if (spec.width <= size) return std::string(sign).append(digits);
  runtime.charge_text(static_cast<std::uint64_t>(spec.width) * spec.fill.size());
  return std::string(sign) + repeated(spec.fill, static_cast<std::size_t>(spec.width - size)) + std::string(digits);
}

std::string_view sign_of(bool negative, const FormatSpec& spec) {
  return negative ? "-" : spec.sign == '+' ? "+" : spec.sign == ' ' ? " " : "";
}

std::string digits_in_base(Int number, unsigned base, bool upper_case) {
  __extension__ using Unsigned = unsigned __int128;
  Unsigned left = number < 0 ? -static_cast<Unsigned>(number) : static_cast<Unsigned>(number);
  const std::string_view all = upper_case ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string digits;
  do {
    digits.insert(digits.begin(), all[static_cast<std::size_t>(left % base)]);
    left /= base;
  } while (left > 0);
  return digits;
}

// Returns the digits of a float whose specification has a precision and no type. Differs from type g in two ways: it switches to an
// exponent at one digit less, and a number without an exponent always has a fraction.
std::string general_digits(double number, int precision) {
  std::string digits = fmt::format("{:.{}e}", number, precision - 1);
  const std::size_t e = digits.find('e');
  if (e == std::string::npos) return digits;  // inf or nan
  const int exponent = std::stoi(digits.substr(e + 1));
  if (exponent >= -4 && exponent < precision - 1) {
    digits = fmt::format("{:.{}g}", number, precision);
    return digits.find('.') == std::string::npos ? digits + ".0" : digits;
  }
  std::string mantissa = digits.substr(0, e);
  if (mantissa.find('.') != std::string::npos) mantissa.erase(mantissa.find_last_not_of("0") + 1);
  if (mantissa.ends_with('.')) mantissa.pop_back();
  return mantissa + digits.substr(e);
}

std::string real_digits(double number, const FormatSpec& spec) {
  const auto precision = static_cast<int>(spec.precision.value_or(6));
  switch (spec.type) {
    case 'e':
      return fmt::format("{:.{}e}", number, precision);
    case 'E':
      return fmt::format("{:.{}E}", number, precision);
    case 'f':
    case 'F':
      return fmt::format("{:.{}f}", number, precision);
    case '%':
      return fmt::format("{:.{}f}%", number * 100, precision);
    case 'g':
    case 'n':
      return fmt::format("{:.{}g}", number, precision);
    case 'G':
      return fmt::format("{:.{}G}", number, precision);
    default:
      break;
  }
  if (!spec.precision) return float_repr(number);
  return general_digits(number, std::max(1, precision));
}

[[noreturn]] void unknown_code(Runtime& runtime, char type, std::string_view of) {
  runtime.fail(fmt::format("Unknown format code '{}' for object of type '{}'", type, of));
}

std::string format_text(Runtime& runtime, std::string_view text, const FormatSpec& spec) {
  if (spec.type != '\0' && spec.type != 's') unknown_code(runtime, spec.type, "str");
  if (spec.align == '=') runtime.fail("'=' alignment not allowed in string format specifier");
  if (spec.sign != '-' || spec.grouping != '\0' || spec.alternate) runtime.fail("Sign not allowed in string format specifier");
  if (spec.precision) text = text.substr(0, byte_offset(text, static_cast<std::size_t>(*spec.precision)));
  return pad(runtime, text, spec, '<');
}

// Rejects options that Python does not allow for the number type of the specification.
void check_number(Runtime& runtime, const FormatSpec& spec) {
  const bool is_character = spec.type == 'c';
  const bool is_based = spec.type == 'b' || spec.type == 'o' || spec.type == 'x' || spec.type == 'X';
  if (spec.grouping != '\0' && (is_character || spec.type == 'n' || (spec.grouping == ',' && is_based)))
    runtime.fail(fmt::format("Cannot specify '{}' with '{}'.", spec.grouping, spec.type));
  if (is_character && (spec.sign != '-' || spec.alternate)) runtime.fail("Sign not allowed with integer format specifier 'c'");
}

std::string format_value(Runtime& runtime, const Value& value, std::string_view text) {
  if (text.empty()) return runtime.str(value);
  const FormatSpec spec = read_spec(runtime, text, value.is_text());
  if (value.is_text()) return format_text(runtime, value.text(), spec);
  if (value.is_number()) check_number(runtime, spec);
  if (value.is_int()) return format_integer(runtime, value.integer(), spec);
  if (value.is<double>()) return format_real(runtime, value.as<double>(), spec);
  runtime.fail(fmt::format("unsupported format string passed to {}.__format__", type_name(value)));
}

// Formats a text with replacement fields in braces (str.format).
class FieldFormatter {
 public:
  FieldFormatter(Runtime& runtime, const Arguments& arguments, const Value* mapping)
      : runtime_(runtime), arguments_(arguments), mapping_(mapping) {}

  std::string run(std::string_view text, int depth) {
    if (depth > 2) runtime_.fail("Max string recursion exceeded");
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      if ((c == '{' || c == '}') && i + 1 < text.size() && text[i + 1] == c) {
        out.push_back(text[i++]);
      } else if (c == '}') {
        runtime_.fail("Single '}' encountered in format string");
      } else if (c != '{') {
        out.push_back(c);
      } else {
        const std::size_t end = end_of_field(text, i + 1);
        out += field(text.substr(i + 1, end - i - 1), depth);
        i = end;
      }
      if (out.size() > runtime_.options().limits.max_output_bytes) runtime_.charge_text(out.size());
    }
    return out;
  }

 private:
  std::size_t end_of_field(std::string_view text, std::size_t at) const {
    for (int open = 1; at < text.size(); ++at) {
      if (text[at] == '{') ++open;
      if (text[at] == '}' && --open == 0) return at;
    }
    runtime_.fail("expected '}' before end of string");
  }

  std::string field(std::string_view text, int depth) {
    runtime_.charge(1);
    const std::size_t colon = std::min(text.find_first_of(":!"), text.size());
    Value value = look_up(text.substr(0, colon));
    std::string_view rest = text.substr(colon);
    if (rest.starts_with('!')) {
      if (rest.size() < 2) runtime_.fail("unmatched '{' in format spec");
      if (rest[1] == 'r')
        value = runtime_.text(runtime_.repr(value));
      else if (rest[1] == 's')
        value = runtime_.text(runtime_.str(value));
      else
        runtime_.unsupported(fmt::format("conversion '!{}'", rest[1]));
      rest.remove_prefix(2);
      if (!rest.empty() && !rest.starts_with(':')) runtime_.fail("expected ':' after conversion specifier");
    }
    if (rest.starts_with(':')) rest.remove_prefix(1);
    return format_value(runtime_, value, run(rest, depth + 1));
  }

  // Evaluates a path "name.attribute[item]". Its first part is an index, a name, or empty for the next positional argument.
  Value look_up(std::string_view path) {
    const std::size_t end = std::min(path.find_first_of(".["), path.size());
    if (end == 0 && !path.empty()) runtime_.fail("a field of str.format begins without a name");
    Value value = first_part(path.substr(0, end));
    path.remove_prefix(end);
    while (!path.empty()) {
      const bool is_item = path.front() == '[';
      path.remove_prefix(1);
      const std::size_t stop_at = is_item ? path.find(']') : std::min(path.find_first_of(".["), path.size());
      if (stop_at == std::string_view::npos) runtime_.fail("Missing ']' in format string");
      const std::string_view part = path.substr(0, stop_at);
      if (part.empty()) runtime_.fail("Empty attribute in format string");
      value = is_item ? runtime_.item(value, key_of(part)) : runtime_.attribute(value, part);
      path.remove_prefix(stop_at + (is_item ? 1 : 0));
      if (is_item && !path.empty() && path.front() != '.' && path.front() != '[')
        runtime_.fail("Only '.' or '[' may follow ']' in format field specifier");
    }
    return value;
  }

  static bool is_index(std::string_view name) {
    return !name.empty() && name.size() < 6 && std::all_of(name.begin(), name.end(), is_decimal);
  }
  static Value key_of(std::string_view part) {
    return is_index(part) ? Value(Int{std::stoi(std::string(part))}) : make_text(std::string(part));
  }

  Value first_part(std::string_view name) {
    if (mapping_ != nullptr) {
      const bool is_key = mapping_->is<Dict*>() && !name.empty() && !is_index(name);
      const Value* found = is_key ? mapping_->as<Dict*>()->find(name) : nullptr;
      if (found == nullptr) runtime_.fail(fmt::format("str.format_map: no key '{}'", name));
      return *found;
    }
    if (name.empty() || is_index(name)) {
      const char mode = name.empty() ? 'a' : 'd';
      if (mode_ != '\0' && mode_ != mode) runtime_.fail("cannot switch between manual field specification and automatic field numbering");
      mode_ = mode;
      const std::size_t index = name.empty() ? next_++ : static_cast<std::size_t>(std::stoi(std::string(name)));
      if (index >= arguments_.positional.size()) runtime_.fail("Replacement index out of range for positional args tuple");
      return arguments_.positional[index];
    }
    for (const auto& [key, value] : arguments_.named)
      if (key == name) return value;
    runtime_.fail(fmt::format("str.format: no argument '{}'", name));
  }

  Runtime& runtime_;
  const Arguments& arguments_;
  const Value* mapping_;
  std::size_t next_ = 0;
  char mode_ = '\0';  // 'a': automatic field numbers, 'd': explicit numbers
};

}  // namespace

std::string pad(Runtime& runtime, std::string_view text, const FormatSpec& spec, char align) {
  const auto size = static_cast<std::int64_t>(count_code_points(text));
  if (spec.width <= size) return std::string(text);
  runtime.charge_text(static_cast<std::uint64_t>(spec.width) * spec.fill.size());
  const auto missing = static_cast<std::size_t>(spec.width - size);
  if (spec.align != '\0') align = spec.align;
  const std::size_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  return repeated(spec.fill, left) + std::string(text) + repeated(spec.fill, missing - left);
}

std::string centered(Runtime& runtime, std::string_view text, const FormatSpec& spec) {
  const auto size = static_cast<std::int64_t>(count_code_points(text));
  if (spec.width <= size) return std::string(text);
  FormatSpec left = spec;
  left.width = spec.width - (spec.width - size) / 2 - ((spec.width - size) & spec.width & 1);
  FormatSpec both = spec;
  both.align = '\0';
  left.align = '\0';
  // The inner call pads on the right, the outer one then on the left.
  return pad(runtime, pad(runtime, text, left, '<'), both, '>');
}

std::string format_integer(Runtime& runtime, Int number, const FormatSpec& spec) {
  if (spec.type != '\0' && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos)
    return format_real(runtime, static_cast<double>(number), spec);
  if (spec.precision) runtime.fail("Precision not allowed in integer format specifier");
  if (spec.type == 'c') {
    if (number < 0 || number > 0x10FFFF) runtime.fail("%c arg not in range(0x110000)");
    std::string character;
    append_utf8(static_cast<char32_t>(number), character);
    return pad(runtime, character, spec, '>');
  }
  unsigned base = 10;
  std::string prefix(sign_of(number < 0, spec));
  if (spec.type == 'x' || spec.type == 'X')
    base = 16;
  else if (spec.type == 'o')
    base = 8;
  else if (spec.type == 'b')
    base = 2;
  else if (spec.type != '\0' && spec.type != 'd' && spec.type != 'n')
    unknown_code(runtime, spec.type, "int");
  if (spec.alternate && base != 10) prefix += std::string("0") + spec.type;
  return in_width(runtime, prefix, grouped(digits_in_base(number, base, spec.type == 'X'), spec.grouping, base == 10 ? 3 : 4), spec);
}

std::string format_real(Runtime& runtime, double number, const FormatSpec& spec) {
  if (spec.type != '\0' && std::string_view("eEfFgGn%").find(spec.type) == std::string_view::npos)
    unknown_code(runtime, spec.type, "float");
  if (spec.precision.value_or(0) > kMaxPrecision) runtime.unsupported("a precision of this size");
  if (spec.alternate) runtime.unsupported("'#' in the format of a float");
  const std::string digits = real_digits(std::abs(number), spec);
  return in_width(runtime, sign_of(std::signbit(number), spec), grouped(digits, spec.grouping, 3), spec);
}

Value format_fields(Runtime& runtime, std::string_view format, const Arguments& arguments, const Value* mapping) {
  return runtime.text(FieldFormatter(runtime, arguments, mapping).run(format, 0));
}

}  // namespace quire::jinja
