#pragma once
// Translates a schema's `pattern` and `format` to regular expressions for the JSON spellings of matching texts.
#include <optional>
#include <string>
#include <string_view>

#include "quire/base/error.h"

namespace quire {

// Returns a regular expression for the text between the quotes of a string in which `pattern` is found. As JSON Schema demands, a pattern
// without anchors may match anywhere in the string. Returns nullopt if the pattern uses syntax that ECMA 262 and Rust's crate `regex` do
// not share. Errors: the pattern is not a regular expression, or has lookaround or backreferences, which token masks cannot enforce.
[[nodiscard]] Result<std::optional<std::string>> pattern_regex(std::string_view pattern);

// Returns the expression for a format of draft 2020-12 with a defined syntax; nullopt for any other format.
[[nodiscard]] std::optional<std::string> format_regex(std::string_view format);

}  // namespace quire
