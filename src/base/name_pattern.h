#pragma once
// Patterns of names, such as "claude-*".
#include <string_view>

namespace quire {

inline bool is_pattern(std::string_view text) {
  return text.find('*') != std::string_view::npos;
}

// Returns whether `name` matches the pattern, in which each '*' matches any characters, also none. Takes at most the product of both
// lengths.
inline bool matches_pattern(std::string_view pattern, std::string_view name) {
  std::size_t at = 0, in = 0;                                 // next characters of the pattern and of the name
  std::size_t star = std::string_view::npos, after_star = 0;  // the last '*', and the part of the name that it does not match yet
  while (in < name.size()) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      after_star = in;
    } else if (at < pattern.size() && pattern[at] == name[in]) {
      ++at;
      ++in;
    } else if (star != std::string_view::npos) {
      at = star + 1;
      in = ++after_star;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', at) == std::string_view::npos;
}

}  // namespace quire
