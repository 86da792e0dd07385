// Implements methods of str. Runs on the render's thread, and charges its budget for the text that it produces. Characters are code points,
// as in Python.
#include <fmt/format.h>

#include <algorithm>

#include "text/template/builtin.h"
#include "text/template/format_spec.h"
#include "text/template/python_text.h"
#include "text/template/runtime.h"
#include "text/template/unicode.h"

namespace quire::jinja {
namespace {

template <bool left, bool right>
Value strip_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(runtime, "method 'strip'", arguments, {"chars"});
  return runtime.text(std::string(strip(self.text(), bound.get(0), runtime, left, right)), self.is_markup());
}

template <std::string (*mapping)(std::string_view)>
Value mapped(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(runtime, "a case method", arguments, {});
  return runtime.text(mapping(self.text()), self.is_markup());
}

// Narrows `text` to text[start:end] for startswith, find and count, and sets `offset` to the first byte of the result. Returns false if
// start is after end.
bool narrow(Runtime& runtime, const Bound& bound, std::string_view& text, std::size_t& offset) {
  if (bound.get(1) == nullptr && bound.get(2) == nullptr) return true;
  const auto size = static_cast<std::int64_t>(count_code_points(text));
  runtime.charge(text.size() / 64);
  const auto place = [&](std::size_t index, std::int64_t fallback) {
    if (bound.get(index) != nullptr && bound.get(index)->is<None>()) return fallback;
    const std::int64_t at = bound.integer(index, fallback);
    return at < 0 ? std::max<std::int64_t>(0, at + size) : at;
  };
  const std::int64_t start = place(1, 0);
  const std::int64_t end = std::min(place(2, size), size);
  if (start > end) return false;
  offset = byte_offset(text, static_cast<std::size_t>(start));
  text = text.substr(offset, byte_offset(text, static_cast<std::size_t>(end)) - offset);
  return true;
}

template <bool at_start>
Value affix(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(runtime, at_start ? "method 'startswith'" : "method 'endswith'", arguments, {"prefix", "start", "end"});
  std::string_view text = self.text();
  std::size_t offset = 0;
  const bool inside = narrow(runtime, bound, text, offset);
  const Value& given = bound.need(0);
  const bool several = given.is<List*>() && given.as<List*>()->kind == ListKind::tuple;
  const std::vector<Value> candidates = several ? runtime.iterate(given) : std::vector<Value>{given};
  for (const Value& candidate : candidates) {
    runtime.require_defined(candidate);
    if (!candidate.is_text())
      runtime.fail(fmt::format("startswith and endswith need a str or a tuple of str, not {}", type_name(candidate)));
    if (inside && (at_start ? text.starts_with(candidate.text()) : text.ends_with(candidate.text()))) return Value(true);
  }
  return Value(false);
}

template <bool last, bool must>
Value find(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(runtime, "method 'find' or 'index'", arguments, {"sub", "start", "end"});
  bound.need(0);
  const std::string_view sub = bound.text(0, "");
  std::string_view text = self.text();
  std::size_t offset = 0;
  runtime.charge(text.size() / 64);
  const bool inside = narrow(runtime, bound, text, offset);
  const std::size_t at = last ? text.rfind(sub) : text.find(sub);
  if (inside && at != std::string_view::npos) return Value(Int{static_cast<Int>(count_code_points(self.text().substr(0, offset + at)))});
  if (must) runtime.fail("substring not found");
  return Value(Int{-1});
}

Value count(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(runtime, "method 'count'", arguments, {"sub", "start", "end"});
  bound.need(0);
  const std::string_view sub = bound.text(0, "");
  std::string_view text = self.text();
  std::size_t offset = 0;
  runtime.charge(text.size() / 64);
  if (!narrow(runtime, bound, text, offset)) return Value(Int{0});
  if (sub.empty()) return Value(Int{static_cast<Int>(count_code_points(text)) + 1});
  Int found = 0;
  for (std::size_t at = text.find(sub); at != std::string_view::npos; at = text.find(sub, at + sub.size())) ++found;
  return Value(found);
}

Value replace(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(runtime, "method 'replace'", arguments, {"old", "new", "count"});
  if (self.is_markup()) runtime.unsupported("method 'replace' on a safe string");
  bound.need(0);
  bound.need(1);
  return replace_text(runtime, self.text(), bound.text(0, ""), bound.text(1, ""), bound.integer(2, -1));
}

Value join(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(runtime, "method 'join'", arguments, {"iterable"});
  if (self.is_markup()) runtime.unsupported("method 'join' on a safe string");
  std::string out;
  bool first = true;
  for (const Value& element : runtime.iterate(bound.need(0))) {
    if (!element.is_text()) runtime.fail(fmt::format("sequence item: expected str instance, {} found", type_name(element)));
    if (!std::exchange(first, false)) out += self.text();
    out += element.text();
    if (out.size() > runtime.options().limits.max_output_bytes) runtime.charge_text(out.size());
  }
  return runtime.text(std::move(out));
}

template <bool prefix>
Value remove_affix(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(runtime, "method 'removeprefix' or 'removesuffix'", arguments, {"affix"});
  bound.need(0);
  const std::string_view affix_text = bound.text(0, "");
  std::string_view text = self.text();
  if (prefix && text.starts_with(affix_text)) text.remove_prefix(affix_text.size());
  if (!prefix && text.ends_with(affix_text)) text.remove_suffix(affix_text.size());
  return runtime.text(std::string(text), self.is_markup());
}

template <bool (*holds)(char32_t), bool of_empty = false>
Value every(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(runtime, "a method of str", arguments, {});
  const std::string_view text = self.text();
  runtime.charge(text.size() / 64);
  bool all = of_empty || !text.empty();
  for (std::size_t position = 0; all && position < text.size();) all = holds(next_code_point(text, position));
  return Value(all);
}

template <bool upper_case>
Value is_case(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(runtime, "method 'isupper' or 'islower'", arguments, {});
  const std::string_view text = self.text();
  runtime.charge(text.size() / 32);
  return Value(text == (upper_case ? upper(text) : lower(text)) && upper(text) != lower(text));
}

Value format(Runtime& runtime, const Value& self, const Arguments& arguments) {
  if (self.is_markup()) runtime.unsupported("method 'format' on a safe string");
  return format_fields(runtime, self.text(), arguments);
}

Value format_map(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(runtime, "method 'format_map'", arguments, {"mapping"});
  if (self.is_markup()) runtime.unsupported("method 'format_map' on a safe string");
  return format_fields(runtime, self.text(), {}, &bound.need(0));
}

bool is_alphanumeric(char32_t c) {
  return is_alpha(c) || is_numeric(c) || is_digit(c);
}
bool is_ascii(char32_t c) {
  return c < 0x80;
}

constexpr Method kMethods[] = {
    {"strip", strip_method<true, true>},
    {"lstrip", strip_method<true, false>},
    {"rstrip", strip_method<false, true>},
    {"upper", mapped<upper>},
    {"lower", mapped<lower>},
    {"title", mapped<title>},
    {"capitalize", mapped<capitalize>},
    {"startswith", affix<true>},
    {"endswith", affix<false>},
    {"find", find<false, false>},
    {"rfind", find<true, false>},
    {"index", find<false, true>},
    {"rindex", find<true, true>},
    {"count", count},
    {"replace", replace},
    {"join", join},
    {"removeprefix", remove_affix<true>},
    {"removesuffix", remove_affix<false>},
    {"isspace", every<is_space>},
    {"isdigit", every<is_digit>},
    {"isdecimal", every<is_decimal>},
    {"isnumeric", every<is_numeric>},
    {"isalpha", every<is_alpha>},
    {"isalnum", every<is_alphanumeric>},
    {"isascii", every<is_ascii, true>},
    {"isupper", is_case<true>},
    {"islower", is_case<false>},
    {"format", format},
    {"format_map", format_map},
};

}  // namespace

std::span<const Method> text_methods() {
  return kMethods;
}

}  // namespace quire::jinja
