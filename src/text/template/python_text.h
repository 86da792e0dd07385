#pragma once
// Pieces of Python's str shared by filters and methods.
#include <string>
#include <string_view>
#include <vector>

#include "text/template/runtime.h"

namespace quire::jinja {

// str.strip(chars) and its halves; `chars` null or None strips white space.
std::string_view strip(std::string_view text, const Value* chars, Runtime& runtime, bool left, bool right);
// str.replace; a negative count means all.
Value replace_text(Runtime& runtime, std::string_view text, std::string_view from, std::string_view to, std::int64_t count,
                   bool markup = false);
// str.splitlines: views into `text`.
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);
std::string capitalize(std::string_view text);
// str.title: every run of cased characters starts with a capital.
std::string title(std::string_view text);

}  // namespace quire::jinja
