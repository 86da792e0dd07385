#pragma once
// Appends formatted text to a string. fmt::format_to with a std::back_insert_iterator has the same result, but each file that calls it
// compiles the whole formatter, which takes half a second.
#include <fmt/format.h>

#include <string>

namespace quire {

void append_format_args(std::string& out, fmt::string_view format, fmt::format_args args);

template <class... Args>
void append_format(std::string& out, fmt::format_string<Args...> format, Args&&... args) {
  append_format_args(out, format, fmt::make_format_args(args...));
}

}  // namespace quire
