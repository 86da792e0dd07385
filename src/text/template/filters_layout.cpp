// Implements filters that lay out text, and filters for HTML. Runs on the render's thread, and charges its budget for the text that it
// produces.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "text/template/builtin.h"
#include "text/template/format_spec.h"
#include "text/template/merge_sort.h"
#include "text/template/python_text.h"
#include "text/template/unicode.h"
#include "text/template/word_wrap.h"
#include "text/utf8.h"

namespace quire::jinja {
namespace {

Value center(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "filter 'center'", arguments, {"width"});
  FormatSpec spec;
  spec.width = bound.integer(0, 80);
  return runtime.text(centered(runtime, runtime.str(value), spec), value.is_markup());
}

Value truncate_text(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "filter 'truncate'", arguments, {"length", "killwords", "end", "leeway"});
  if (!value.is_text() && !value.is<Undefined>()) runtime.fail(fmt::format("object of type '{}' has no len()", type_name(value)));
  const std::string_view text = value.is_text() ? value.text() : "", end = bound.text(2, "...");
  const std::int64_t most = bound.integer(0, 255), leeway = bound.integer(3, 5);
  const auto end_size = static_cast<std::int64_t>(count_code_points(end));
  if (most < end_size) runtime.fail(fmt::format("expected length >= {}, got {}", end_size, most));
  if (leeway < 0) runtime.fail(fmt::format("expected leeway >= 0, got {}", leeway));
  runtime.charge(text.size() / 64);
  if (static_cast<std::int64_t>(count_code_points(text)) - most <= leeway) return value;
  std::string_view kept = text.substr(0, byte_offset(text, static_cast<std::size_t>(most - end_size)));
  if (!bound.flag(1, false)) kept = kept.substr(0, kept.rfind(' '));
  return runtime.text(std::string(kept).append(end), value.is_markup());
}

Value word_count(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "filter 'wordcount'", arguments, {});
  const std::string text = runtime.str(value);
  runtime.charge(text.size() / 16);
  Int count = 0;
  bool inside = false;
  for (std::size_t position = 0; position < text.size();) {
    const char32_t c = next_code_point(text, position);
    const bool is_word = c == '_' || is_alpha(c) || is_numeric(c);
    count += is_word && !std::exchange(inside, is_word) ? 1 : 0;
    inside = is_word;
  }
  return Value(count);
}

Value wrap(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "filter 'wordwrap'", arguments, {"width", "break_long_words", "wrapstring", "break_on_hyphens"});
  runtime.require_defined(value);
  if (!value.is_text()) runtime.fail(fmt::format("'{}' object has no attribute 'splitlines'", type_name(value)));
  const std::int64_t width = bound.integer(0, 79);
  if (width < 1) runtime.fail(fmt::format("invalid width {} (must be > 0)", width));
  const bool is_default = bound.get(2) == nullptr || bound.get(2)->is<None>();
  const std::string_view between = is_default ? std::string_view("\n") : bound.text(2, "\n");
  runtime.charge(value.text().size() * (1 + 4 / static_cast<std::uint64_t>(width)));
  std::string out;
  bool first = true;
  for (const std::string_view line : split_lines(value.text(), false)) {
    const std::vector<std::string> rows =
        wrap_words(line, static_cast<std::size_t>(width), {.breaks_long = bound.flag(1, true), .breaks_hyphens = bound.flag(3, true)});
    runtime.charge(rows.size());
    if (!std::exchange(first, false)) out += between;
    for (const std::string& row : rows) {
      if (&row != rows.data()) out += between;
      out += row;
    }
    if (out.size() > runtime.options().limits.max_output_bytes) runtime.charge_text(out.size());
  }
  return runtime.text(std::move(out));
}

Value file_size(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "filter 'filesizeformat'", arguments, {"binary"});
  runtime.require_defined(value);
  if (value.is_text()) runtime.unsupported("filter 'filesizeformat' of a text");
  if (!value.is_number()) runtime.fail(fmt::format("filter 'filesizeformat' needs a number, not {}", type_name(value)));
  const bool is_binary = bound.flag(0, false);
  const double base = is_binary ? 1024 : 1000, bytes = value.number();
  if (bytes == 1) return make_text("1 Byte");
  if (bytes < base) return make_text(fmt::format("{:.0f} Bytes", std::trunc(bytes)));
  constexpr std::string_view kDecimal = "kMGTPEZY", kBinary = "KMGTPEZY";
  double unit = base * base;
  std::size_t i = 0;
  for (; i + 1 < kDecimal.size() && bytes >= unit; ++i) unit *= base;
  return make_text(fmt::format("{:.1f} {}{}B", base * bytes / unit, (is_binary ? kBinary : kDecimal)[i], is_binary ? "i" : ""));
}

// Returns a copy with the keys of all dicts sorted, as pprint prints them.
Value in_order(Runtime& runtime, const Value& value, int depth) {
  if (depth > 64) stop(ErrorCode::too_large, runtime.line(), "a value is nested too deeply");
  if (value.is<List*>() && value.as<List*>()->kind <= ListKind::tuple) {
    std::vector<Value> elements;
    for (const Value& element : value.as<List*>()->elements) elements.push_back(in_order(runtime, element, depth + 1));
    return runtime.list(std::move(elements), value.as<List*>()->kind);
  }
  if (!value.is<Dict*>()) return value;
  std::vector<std::pair<Value, Value>> entries = value.as<Dict*>()->entries;
  merge_sort(entries, [&](const auto& a, const auto& b) { return runtime.less(a.first, b.first); });
  Dict& dict = runtime.new_dict();
  for (const auto& [key, element] : entries) runtime.set(dict, key, in_order(runtime, element, depth + 1));
  return Value(&dict);
}

Value pretty(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "filter 'pprint'", arguments, {});
  std::string text = runtime.repr(in_order(runtime, value, 0));
  if (count_code_points(text) > 80) runtime.unsupported("filter 'pprint' of more than one line");
  return runtime.text(std::move(text));
}

void append_quoted(std::string& out, std::string_view text, bool is_query) {
  for (const char c : text) {
    const bool is_kept = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                         std::string_view("_.-~").find(c) != std::string_view::npos || (c == '/' && !is_query);
    if (is_kept)
      out += c;
    else if (c == ' ' && is_query)
      out += '+';
    else
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
}

Value url_encode(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "filter 'urlencode'", arguments, {});
  std::string out;
  if (value.is_text() || !is_iterable(value)) {
    append_quoted(out, runtime.str(value), false);
    return runtime.text(std::move(out));
  }
  const auto add = [&](const Value& key, const Value& element) {
    if (!out.empty()) out += '&';
    append_quoted(out, runtime.str(key), true);
    out += '=';
    append_quoted(out, runtime.str(element), true);
    if (out.size() > runtime.options().limits.max_output_bytes) runtime.charge_text(out.size());
  };
  if (value.is<Dict*>()) {
    for (const auto& [key, element] : value.as<Dict*>()->entries) add(key, element);
    return runtime.text(std::move(out));
  }
  for (const Value& element : runtime.iterate(value)) {
    const std::vector<Value> pair = runtime.iterate(element);
    if (pair.size() != 2) runtime.fail("not enough values to unpack (expected 2)");
    add(pair[0], pair[1]);
  }
  return runtime.text(std::move(out));
}

// Returns the character of an HTML character reference ("lt;", "#60;") at the start of `text`, and sets `size` to the length of the
// reference in bytes. `text` starts after the "&".
std::optional<std::string> referenced(std::string_view text, std::size_t& size) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kNames{
      {{"lt;", "<"}, {"gt;", ">"}, {"amp;", "&"}, {"quot;", "\""}, {"apos;", "'"}, {"nbsp;", "\u00A0"}}};
  for (const auto& [name, character] : kNames)
    if (text.starts_with(name)) {
      size = name.size();
      return std::string(character);
    }
  if (!text.starts_with('#')) return std::nullopt;
  const bool is_hex = text.size() > 1 && (text[1] | 0x20) == 'x';
  std::uint32_t code = 0;
  std::size_t at = is_hex ? 2 : 1;
  const std::size_t begin = at;
  for (; at < text.size() && at < begin + 8; ++at) {
    const char c = text[at];
    const int digit = c >= '0' && c <= '9' ? c - '0' : is_hex && (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : -1;
    if (digit < 0) break;
    code = code * (is_hex ? 16 : 10) + static_cast<std::uint32_t>(digit);
  }
  if (at == begin || at >= text.size() || text[at] != ';') return std::nullopt;
  if (code == 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) code = 0xFFFD;
  size = at + 1;
  std::string character;
  append_utf8(static_cast<char32_t>(code), character);
  return character;
}

std::string without_tags(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const bool is_comment = text.substr(at).starts_with("<!--");
    const std::size_t end = text[at] == '<' ? text.find(is_comment ? "-->" : ">", at) : std::string_view::npos;
    if (end == std::string_view::npos)
      out += text[at++];
    else
      at = end + (is_comment ? 3 : 1);
  }
  return out;
}

Value strip_tags(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "filter 'striptags'", arguments, {});
  const std::string whole = runtime.str(value);
  // Charges for the worst case: without_tags() may search to the end of the text for each "<".
  runtime.charge(whole.size() * (1 + static_cast<std::size_t>(std::count(whole.begin(), whole.end(), '<'))) / 64);
  const std::string text = without_tags(whole);
  std::string words;
  for (std::string_view rest = strip_left(text); !rest.empty(); rest = strip_left(rest)) {
    std::size_t end = 0;
    for (std::size_t next = 0; end < rest.size(); end = next)
      if (is_space(next_code_point(rest, next))) break;
    if (!words.empty()) words += ' ';
    words += rest.substr(0, end);
    rest.remove_prefix(end);
  }
  std::string out;
  for (std::size_t at = 0; at < words.size(); ++at) {
    std::size_t size = 0;
    const auto character = words[at] == '&' ? referenced(std::string_view(words).substr(at + 1), size) : std::nullopt;
    out += character ? *character : std::string(1, words[at]);
    at += size;
  }
  return runtime.text(std::move(out));
}

Value xml_attributes(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "filter 'xmlattr'", arguments, {"autospace"});
  runtime.require_defined(value);
  if (!value.is<Dict*>()) runtime.fail(fmt::format("'{}' object has no attribute 'items'", type_name(value)));
  const auto escaped = [&](const Value& part) { return part.is_markup() ? std::string(part.text()) : escape_html(runtime.str(part)); };
  std::string out;
  for (const auto& [key, element] : value.as<Dict*>()->entries) {
    if (element.is<None>() || element.is<Undefined>()) continue;
    if (!key.is_text()) runtime.fail(fmt::format("the name of an attribute must be a string, not {}", type_name(key)));
    if (key.text().find_first_of(" \t\n\f\r/>=") != std::string_view::npos)
      runtime.fail(fmt::format("Invalid character in attribute name: {}", text_repr(key.text())));
    if (!out.empty()) out += ' ';
    out += escaped(key) + "=\"" + escaped(element) + '"';
    if (out.size() > runtime.options().limits.max_output_bytes) runtime.charge_text(out.size());
  }
  if (!out.empty() && bound.flag(0, true)) out.insert(out.begin(), ' ');
  return runtime.text(std::move(out));
}

Value force_escape(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "filter 'forceescape'", arguments, {});
  return runtime.text(escape_html(runtime.str(value)), true);
}

constexpr Filter kLayoutFilters[] = {
    {"center", center},          {"truncate", truncate_text},   {"wordcount", word_count}, {"wordwrap", wrap},
    {"pprint", pretty},          {"urlencode", url_encode},     {"striptags", strip_tags}, {"filesizeformat", file_size},
    {"xmlattr", xml_attributes}, {"forceescape", force_escape},
};

}  // namespace

std::span<const Filter> layout_filters() {
  return kLayoutFilters;
}

}  // namespace quire::jinja
