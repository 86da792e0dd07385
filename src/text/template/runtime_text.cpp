// Implements str() and repr() as Python does, on the render's thread. The results become part of prompts, so every character must equal
// Python's, for example in floats, quotes and escapes.
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "text/template/runtime.h"
#include "text/template/runtime_nesting.h"
#include "text/template/unicode.h"
#include "text/utf8.h"

namespace quire::jinja {

std::string float_repr(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  std::array<char, 64> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), std::abs(number), std::chars_format::scientific).ptr;
  const std::string_view scientific(buffer.data(), static_cast<std::size_t>(end - buffer.data()));
  const std::size_t e = scientific.find('e');
  const int exponent = std::atoi(std::string(scientific.substr(e + 1)).c_str());
  std::string digits(scientific.substr(0, 1));
  if (e > 1) digits += scientific.substr(2, e - 2);
  const std::string sign = std::signbit(number) ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    const std::string mantissa = digits.size() > 1 ? digits.substr(0, 1) + "." + digits.substr(1) : digits;
    return sign + mantissa + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return sign + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() < whole) digits.append(whole - digits.size(), '0');
  const std::string fraction = digits.size() > whole ? digits.substr(whole) : "0";
  return sign + digits.substr(0, whole) + "." + fraction;
}

namespace {

void append_escaped(std::string& out, char32_t c) {
  switch (c) {
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    case '\\':
      out += "\\\\";
      return;
    default:
      break;
  }
  const auto code = static_cast<std::uint32_t>(c);
  if (code < 0x7F ? code >= 0x20 : is_printable(c))
    append_utf8(c, out);
  else if (code < 0x100)
    out += fmt::format("\\x{:02x}", code);
  else if (code < 0x10000)
    out += fmt::format("\\u{:04x}", code);
  else
    out += fmt::format("\\U{:08x}", code);
}

}  // namespace

std::string text_repr(std::string_view text) {
  const bool double_quotes = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = double_quotes ? '"' : '\'';
  std::string out(1, quote);
  for (std::size_t position = 0; position < text.size();) {
    const char32_t c = next_code_point(text, position);
    if (c == static_cast<char32_t>(quote)) {
      out += '\\';
      out += quote;
    } else {
      append_escaped(out, c);
    }
  }
  return out + quote;
}

void Runtime::append_elements(std::string& out, const std::vector<Value>& elements) {
  bool first = true;
  for (const Value& element : elements) {
    if (!std::exchange(first, false)) out += ", ";
    append_repr(out, element);
  }
}

void Runtime::append_repr(std::string& out, const Value& value) {
  const Nesting nesting(*this);
  charge(1);
  if (out.size() > options_.limits.max_output_bytes) charge_text(out.size());
  if (value.is_text()) {
    charge(value.text().size() / 64);
    out += value.is_markup() ? "Markup(" + text_repr(value.text()) + ")" : text_repr(value.text());
  } else if (value.is<List*>()) {
    const List& list = *value.as<List*>();
    if (list.kind != ListKind::list && list.kind != ListKind::tuple) unsupported(fmt::format("printing a {}", type_name(value)));
    out += list.kind == ListKind::list ? '[' : '(';
    append_elements(out, list.elements);
    if (list.kind == ListKind::tuple && list.elements.size() == 1) out += ',';
    out += list.kind == ListKind::list ? ']' : ')';
  } else if (value.is<Dict*>()) {
    out += '{';
    bool first = true;
    for (const auto& [key, element] : value.as<Dict*>()->entries) {
      if (!std::exchange(first, false)) out += ", ";
      append_repr(out, key);
      out += ": ";
      append_repr(out, element);
    }
    out += '}';
  } else if (value.is<Undefined>()) {
    out += "Undefined";
  } else {
    std::string buffer;
    out += str_view(value, buffer);
  }
}

std::string Runtime::repr(const Value& value) {
  std::string out;
  append_repr(out, value);
  return out;
}

std::string_view Runtime::str_view(const Value& value, std::string& buffer) {
  if (value.is_text()) return value.text();
  if (value.is<Undefined>()) return "";
  if (value.is<None>()) return "None";
  if (value.is<bool>()) return value.as<bool>() ? "True" : "False";
  if (value.is<Int>()) return buffer = fmt::format("{}", value.as<Int>());
  if (value.is<double>()) return buffer = float_repr(value.as<double>());
  if (value.is<List*>() || value.is<Dict*>()) return buffer = repr(value);
  unsupported(fmt::format("printing a {}", type_name(value)));
}

std::string Runtime::str(const Value& value) {
  std::string buffer;
  const std::string_view view = str_view(value, buffer);
  return view.data() == buffer.data() ? std::move(buffer) : std::string(view);
}

}  // namespace quire::jinja
