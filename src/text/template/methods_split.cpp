// Implements methods of str that split a text. Runs on the render's thread. The parts are copied, and the copies are charged.
#include <algorithm>

#include "text/template/builtin.h"
#include "text/template/python_text.h"
#include "text/template/runtime.h"
#include "text/template/unicode.h"
#include "text/utf8.h"

namespace quire::jinja {
namespace {

Value parts_list(Runtime& runtime, const std::vector<std::string_view>& parts, bool markup, ListKind kind = ListKind::list) {
  std::vector<Value> out;
  out.reserve(parts.size());
  for (const std::string_view part : parts) out.push_back(runtime.text(std::string(part), markup));
  return runtime.list(std::move(out), kind);
}

std::vector<std::string_view> split_spaces(std::string_view text, std::int64_t limit) {
  std::vector<std::string_view> parts;
  for (text = strip_left(text); !text.empty(); text = strip_left(text)) {
    if (limit-- == 0) {
      parts.push_back(text);
      break;
    }
    std::size_t end = 0;
    for (std::size_t next = 0; end < text.size(); end = next)
      if (is_space(next_code_point(text, next))) break;
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return parts;
}

std::vector<std::string_view> split_spaces_right(std::string_view text, std::int64_t limit) {
  std::vector<std::string_view> parts;
  for (text = strip_right(text); !text.empty(); text = strip_right(text)) {
    if (limit-- == 0) {
      parts.push_back(text);
      break;
    }
    std::size_t start = text.size();
    while (start > 0 && strip_right(text.substr(0, start)).size() == start) start = previous_character(text, start);
    parts.push_back(text.substr(start));
    text = text.substr(0, start);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view separator, std::int64_t limit) {
  std::vector<std::string_view> parts;
  for (std::size_t at = text.find(separator); limit != 0 && at != std::string_view::npos; at = text.find(separator)) {
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + separator.size());
    --limit;
  }
  parts.push_back(text);
  return parts;
}

std::vector<std::string_view> split_at_right(std::string_view text, std::string_view separator, std::int64_t limit) {
  std::vector<std::string_view> parts;
  for (std::size_t at = text.rfind(separator); limit != 0 && at != std::string_view::npos; at = text.rfind(separator)) {
    parts.push_back(text.substr(at + separator.size()));
    text = text.substr(0, at);
    --limit;
  }
  parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

template <bool from_right>
Value split(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(runtime, "method 'split'", arguments, {"sep", "maxsplit"});
  const std::int64_t limit = bound.integer(1, -1);
  const std::string_view text = self.text();
  runtime.charge(text.size() / 16);
  if (bound.get(0) == nullptr || bound.get(0)->is<None>())
    return parts_list(runtime, from_right ? split_spaces_right(text, limit) : split_spaces(text, limit), self.is_markup());
  const std::string_view separator = bound.text(0, "");
  if (separator.empty()) runtime.fail("empty separator");
  return parts_list(runtime, from_right ? split_at_right(text, separator, limit) : split_at(text, separator, limit), self.is_markup());
}

template <bool from_right>
Value partition(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(runtime, "method 'partition'", arguments, {"sep"});
  bound.need(0);
  const std::string_view separator = bound.text(0, "");
  if (separator.empty()) runtime.fail("empty separator");
  const std::string_view text = self.text();
  runtime.charge(text.size() / 64);
  const std::size_t at = from_right ? text.rfind(separator) : text.find(separator);
  std::vector<std::string_view> parts =
      from_right ? std::vector<std::string_view>{"", "", text} : std::vector<std::string_view>{text, "", ""};
  if (at != std::string_view::npos) parts = {text.substr(0, at), separator, text.substr(at + separator.size())};
  return parts_list(runtime, parts, self.is_markup(), ListKind::tuple);
}

Value split_lines_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Bound bound(runtime, "method 'splitlines'", arguments, {"keepends"});
  return parts_list(runtime, split_lines(self.text(), bound.flag(0, false)), self.is_markup());
}

constexpr Method kMethods[] = {
    {"split", split<false>},
    {"rsplit", split<true>},
    {"partition", partition<false>},
    {"rpartition", partition<true>},
    {"splitlines", split_lines_method},
};

}  // namespace

std::span<const Method> split_methods() {
  return kMethods;
}

}  // namespace quire::jinja
