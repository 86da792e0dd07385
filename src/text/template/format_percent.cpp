// Implements the printf-style operator % of Python's str. Runs on the render's thread. Rejects the same formats as Python.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "text/template/format_spec.h"
#include "text/template/unicode.h"

namespace quire::jinja {
namespace {

class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, std::string_view format, const Value& argument)
      : runtime_(runtime),
        format_(format),
        argument_(argument),
        is_tuple_(argument.is<List*>() && argument.as<List*>()->kind == ListKind::tuple) {
    values_ = is_tuple_ ? argument.as<List*>()->elements : std::vector<Value>{argument};
  }

  std::string run() {
    std::string out;
    while (at_ < format_.size()) {
      if (const char c = format_[at_++]; c != '%') {
        out.push_back(c);
        continue;
      }
      runtime_.charge(1);
      out += conversion();
      if (out.size() > runtime_.options().limits.max_output_bytes) runtime_.charge_text(out.size());
    }
    const bool is_mapping = argument_.is<Dict*>() || (argument_.is<List*>() && !is_tuple_);
    if (next_ < values_.size() && !is_mapping && !used_key_) runtime_.fail("not all arguments converted during string formatting");
    return out;
  }

 private:
  char peek() const {
    if (at_ >= format_.size()) runtime_.fail("incomplete format");
    return format_[at_];
  }

  const Value& next_value() {
    if (next_ == values_.size()) runtime_.fail("not enough arguments for format string");
    return values_[next_++];
  }

  // Returns the number at the position, or the next argument for "*".
  std::int64_t number() {
    if (peek() == '*') {
      ++at_;
      const Value& value = next_value();
      if (!value.is_int()) runtime_.fail("* wants int");
      constexpr Int kMost = std::numeric_limits<std::int32_t>::max();
      if (value.integer() > kMost || value.integer() < -kMost) runtime_.fail("width too big");
      return static_cast<std::int64_t>(value.integer());
    }
    std::int64_t value = 0;
    for (; peek() >= '0' && peek() <= '9'; ++at_) {
      value = value * 10 + (peek() - '0');
      if (value > std::numeric_limits<std::int32_t>::max()) runtime_.fail("width too big");
    }
    return value;
  }

  std::string conversion() {
    if (peek() == '%') {
      ++at_;
      return "%";
    }
    std::optional<Value> keyed;
    if (peek() == '(') {
      const std::size_t end = format_.find(')', at_);
      if (end == std::string_view::npos) runtime_.fail("incomplete format key");
      if (!argument_.is<Dict*>()) runtime_.fail("format requires a mapping");
      const std::string_view key = format_.substr(at_ + 1, end - at_ - 1);
      const Value* found = argument_.as<Dict*>()->find(key);
      if (found == nullptr) runtime_.fail(text_repr(key));
      keyed = *found;
      used_key_ = true;
      at_ = end + 1;
    }
    FormatSpec spec;
    bool is_left = false, has_zeros = false;
    for (; std::string_view("-+ #0").find(peek()) != std::string_view::npos; ++at_) {
      is_left |= peek() == '-';
      has_zeros |= peek() == '0';
      spec.alternate |= peek() == '#';
      if (peek() == '+' || (peek() == ' ' && spec.sign != '+')) spec.sign = peek();
    }
    spec.width = number();
    if (spec.width < 0) {
      is_left = true;
      spec.width = -spec.width;
    }
    if (peek() == '.') {
      ++at_;
      spec.precision = std::max<std::int64_t>(0, number());
    }
    if (peek() == 'h' || peek() == 'l' || peek() == 'L') ++at_;
    spec.type = peek();
    ++at_;
    spec.align = is_left ? '<' : '>';
    const Value value = keyed ? *keyed : next_value();
    if (has_zeros && !is_left && spec.type != 's' && spec.type != 'r' && spec.type != 'c') {
      spec.align = '=';
      spec.fill = "0";
    }
    return formatted(spec, value);
  }

  std::string formatted(FormatSpec spec, const Value& value) {
    switch (spec.type) {
      case 's':
      case 'r':
      case 'a':
        return text(spec, value);
      case 'c':
        if (value.is_text() && count_code_points(value.text()) == 1) return pad(runtime_, value.text(), spec, '>');
        if (value.is_int()) return format_integer(runtime_, value.integer(), spec);
        runtime_.fail("%c requires int or char");
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        return integer(spec, value);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        runtime_.require_defined(value);
        if (!value.is_number()) runtime_.fail(fmt::format("must be real number, not {}", type_name(value)));
        return format_real(runtime_, value.number(), spec);
      default:
        runtime_.fail(fmt::format("unsupported format character '{}'", spec.type));
    }
  }

  std::string text(const FormatSpec& spec, const Value& value) {
    if (spec.type == 'a') runtime_.unsupported("'%a' in a format");
    const std::string whole = spec.type == 's' ? runtime_.str(value) : runtime_.repr(value);
    std::string_view shown = whole;
    if (spec.precision) shown = shown.substr(0, byte_offset(shown, static_cast<std::size_t>(*spec.precision)));
    return pad(runtime_, shown, spec, '>');
  }

  std::string integer(FormatSpec spec, const Value& value) {
    runtime_.require_defined(value);
    const bool takes_real = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
    if (!value.is_int() && !(takes_real && value.is<double>()))
      runtime_.fail(fmt::format("%{} format: a real number is required, not {}", spec.type, type_name(value)));
    if (value.is<double>() && (!std::isfinite(value.as<double>()) || std::abs(value.as<double>()) > 1e36))
      runtime_.fail("cannot convert float to integer");
    const Int number = value.is_int() ? value.integer() : static_cast<Int>(value.as<double>());
    if (takes_real) spec.type = 'd';
    if (!spec.precision) return format_integer(runtime_, number, spec);
    FormatSpec digits = spec;
    digits.precision.reset();
    digits.fill = "0";
    digits.align = '=';
    digits.width = *spec.precision + (number < 0 || spec.sign != '-' ? 1 : 0) + (spec.alternate && spec.type != 'd' ? 2 : 0);
    const std::string written = format_integer(runtime_, number, digits);
    if (spec.align == '=') spec.align = '>', spec.fill = "0";
    return pad(runtime_, written, spec, '>');
  }

  Runtime& runtime_;
  std::string_view format_;
  const Value& argument_;
  bool is_tuple_;
  std::vector<Value> values_;
  std::size_t at_ = 0, next_ = 0;
  bool used_key_ = false;
};

}  // namespace

std::string format_percent(Runtime& runtime, std::string_view format, const Value& argument) {
  return PercentFormatter(runtime, format, argument).run();
}

}  // namespace quire::jinja
