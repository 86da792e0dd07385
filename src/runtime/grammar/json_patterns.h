#pragma once
// A schema's `pattern` and `format` as regular expressions for the JSON spellings of the texts that match.
#include <optional>
#include <string>
#include <string_view>

#include "quire/base/error.h"

namespace quire {

// Returns a regular expression for the text between the quotes of a string in which `pattern` is found. JSON Schema searches anywhere,
// unless the pattern has anchors. Only the syntax that ECMA 262 and Rust's crate `regex` share is supported; nullopt: the pattern goes
// beyond it. Errors: the pattern is not a regular expression, or has lookaround or backreferences, which no token mask can follow.
[[nodiscard]] Result<std::optional<std::string>> pattern_regex(std::string_view pattern);

// Returns the expression for a format of draft 2020-12 that has a defined syntax; nullopt: not a known format.
[[nodiscard]] std::optional<std::string> format_regex(std::string_view format);

}  // namespace quire
