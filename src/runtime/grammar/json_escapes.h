#pragma once
// Regular expressions for the JSON spellings of characters in strings: the character itself, short escapes such as \n, \u with upper-case
// or lower-case digits, and surrogate pairs. The syntax is the syntax of Rust's crate `regex`, between the slashes of a Lark terminal.
#include <string>
#include <string_view>
#include <vector>

namespace quire {

struct CodePointRange {
  char32_t first, last;
};
// Sorted ranges with gaps between them, without surrogate code points.
using CodePoints = std::vector<CodePointRange>;

// Returns the ranges sorted and joined.
[[nodiscard]] CodePoints code_points(std::vector<CodePointRange> ranges);
[[nodiscard]] CodePoints complement(const CodePoints& set);

// Returns an expression for one character of the set.
[[nodiscard]] std::string regex_of(const CodePoints& set);
// Return an expression for a whole UTF-8 text, without quotes. regex_of() matches every spelling that JSON writers use; ASCII letters and
// digits are never escaped, because no writer escapes them and a small model that began to do so would escape whole names. shortest_regex()
// matches only the spelling with the fewest escapes.
[[nodiscard]] std::string regex_of(std::string_view text);
[[nodiscard]] std::string shortest_regex(std::string_view text);
// Returns an expression for any character of a property name, in the spellings of regex_of(text).
[[nodiscard]] const std::string& any_name_regex();
// Returns an expression for any character.
[[nodiscard]] const std::string& any_character_regex();

}  // namespace quire
