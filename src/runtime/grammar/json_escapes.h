#pragma once
// Regular expressions for the JSON spellings of the characters of a string: the character itself, short escapes such as \n, \u with digits
// of either case, and surrogate pairs. The syntax is that of Rust's crate `regex`, between the slashes of a Lark terminal.
#include <string>
#include <string_view>
#include <vector>

namespace quire {

struct CodePointRange {
  char32_t first, last;
};
// Sorted ranges with gaps between them, without surrogates.
using CodePoints = std::vector<CodePointRange>;

// Sorts and joins ranges.
[[nodiscard]] CodePoints code_points(std::vector<CodePointRange> ranges);
[[nodiscard]] CodePoints complement(const CodePoints& set);

// Returns an expression for one character of the set.
[[nodiscard]] std::string regex_of(const CodePoints& set);
// These two return an expression for a whole UTF-8 text, without quotes: in every spelling that writers use, or in the spelling with the
// fewest escapes. No writer escapes an ASCII letter or digit, and a small model that began to do so would spell whole names that way.
[[nodiscard]] std::string regex_of(std::string_view text);
[[nodiscard]] std::string shortest_regex(std::string_view text);
// Returns an expression for any character of a name, in the spellings of regex_of(name).
[[nodiscard]] const std::string& any_name_regex();
// Returns an expression for any character.
[[nodiscard]] const std::string& any_character_regex();

}  // namespace quire
