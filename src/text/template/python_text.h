#pragma once
// Declares functions of Python's str that filters and methods share.
#include <string>
#include <string_view>
#include <vector>

#include "text/template/runtime.h"

namespace quire::jinja {

// Implements str.strip(chars); `left` and `right` select the sides. If `chars` is null or None, strips white space.
std::string_view strip(std::string_view text, const Value* chars, Runtime& runtime, bool left, bool right);
// Implements str.replace. A negative count replaces all occurrences.
Value replace_text(Runtime& runtime, std::string_view text, std::string_view from, std::string_view to, std::int64_t count,
                   bool markup = false);
// Implements str.splitlines; returns views into `text`.
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);
std::string capitalize(std::string_view text);
// Implements str.title: each run of cased characters starts with a capital.
std::string title(std::string_view text);

}  // namespace quire::jinja
