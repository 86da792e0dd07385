// Implements functions of Python's str that several filters and methods share. Runs on the render's thread. A function that creates a text
// charges the render's budget through the runtime.
#include "text/template/python_text.h"

#include <fmt/format.h>

#include "text/template/unicode.h"
#include "text/utf8.h"

namespace quire::jinja {
namespace {

bool has_character(std::string_view set, std::string_view character) {
  for (std::size_t position = 0; position < set.size();) {
    const std::size_t start = position;
    next_code_point(set, position);
    if (set.substr(start, position - start) == character) return true;
  }
  return false;
}

std::string_view strip_set_left(std::string_view text, std::string_view set) {
  while (!text.empty()) {
    std::size_t end = 0;
    next_code_point(text, end);
    if (!has_character(set, text.substr(0, end))) break;
    text.remove_prefix(end);
  }
  return text;
}

std::string_view strip_set_right(std::string_view text, std::string_view set) {
  while (!text.empty()) {
    const std::size_t start = previous_character(text, text.size());
    if (!has_character(set, text.substr(start))) break;
    text.remove_suffix(text.size() - start);
  }
  return text;
}

}  // namespace

std::string_view strip(std::string_view text, const Value* chars, Runtime& runtime, bool left, bool right) {
  if (chars == nullptr || chars->is<None>()) {
    runtime.charge(text.size() / 64);
    if (left) text = strip_left(text);
    return right ? strip_right(text) : text;
  }
  runtime.require_defined(*chars);
  if (!chars->is_text()) runtime.fail(fmt::format("strip arg must be None or str, not {}", type_name(*chars)));
  runtime.charge((text.size() / 64 + 1) * (chars->text().size() + 1));
  if (left) text = strip_set_left(text, chars->text());
  return right ? strip_set_right(text, chars->text()) : text;
}

Value replace_text(Runtime& runtime, std::string_view text, std::string_view from, std::string_view to, std::int64_t count, bool markup) {
  std::string out;
  std::size_t position = 0;
  const auto check = [&] {
    if (out.size() > runtime.options().limits.max_output_bytes) runtime.charge_text(out.size());
  };
  while (count != 0 && position <= text.size()) {
    std::size_t found = from.empty() ? position : text.find(from, position);
    if (found == std::string_view::npos) break;
    out += text.substr(position, found - position);
    out += to;
    --count;
    check();
    position = found + from.size();
    if (!from.empty()) continue;
    if (position == text.size()) return runtime.text(std::move(out), markup);
    const std::size_t start = position;
    next_code_point(text, position);
    out += text.substr(start, position - start);
  }
  out += text.substr(std::min(position, text.size()));
  return runtime.text(std::move(out), markup);
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  std::size_t start = 0;
  for (std::size_t position = 0; position < text.size();) {
    const std::size_t end = position;
    const char32_t c = next_code_point(text, position);
    const bool breaks = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (!breaks) continue;
    if (c == '\r' && position < text.size() && text[position] == '\n') ++position;
    lines.push_back(text.substr(start, (keep_ends ? position : end) - start));
    start = position;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

std::string capitalize(std::string_view text) {
  std::string out;
  for (std::size_t position = 0; position < text.size();) {
    const bool first = position == 0;
    const char32_t c = next_code_point(text, position);
    append_utf8(first ? to_title(c) : to_lower(c), out);
  }
  return out;
}

std::string title(std::string_view text) {
  std::string out;
  bool inside = false;
  for (std::size_t position = 0; position < text.size();) {
    const char32_t c = next_code_point(text, position);
    append_utf8(inside ? to_lower(c) : to_title(c), out);
    inside = is_cased(c);
  }
  return out;
}

}  // namespace quire::jinja
