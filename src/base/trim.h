#pragma once
#include <algorithm>
#include <string_view>

namespace quire {

// Return the text without the characters in `blanks` at its beginning, or at both ends.
[[nodiscard]] constexpr std::string_view trim_left(std::string_view text, std::string_view blanks = " \t\r\n") {
  text.remove_prefix(std::min(text.size(), text.find_first_not_of(blanks)));
  return text;
}
[[nodiscard]] constexpr std::string_view trim(std::string_view text, std::string_view blanks = " \t\r\n") {
  text = trim_left(text, blanks);
  return text.substr(0, text.find_last_not_of(blanks) + 1);
}

}  // namespace quire
