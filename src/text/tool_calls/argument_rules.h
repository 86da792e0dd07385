#pragma once
// Builds the grammar rules for arguments that are not JSON, each value according to its schema. Used by `call_grammar`.
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "text/tool_calls/tool.h"

namespace quire {

// More bytes than a grammar may have. Rules beyond this size are left unfinished, so that compiling the grammar fails.
inline constexpr std::size_t kMaxRuleBytes = std::size_t{4} << 20;

// Returns the number of properties in a tool's schema.
[[nodiscard]] std::size_t num_properties(const Tool& tool);

// The tags around the value of an argument. All members except `end_text` contain or return rule bodies.
struct ArgumentTags {
  std::function<std::string(std::string_view key)> head;  // the text before the value
  std::string any_head;                                   // like `head`, with any key
  std::string end, separator;                             // the end of a value; the separator between arguments, or nothing
  std::string end_text;                                   // the text of `end`; empty if `end` is a token
};

// Add the rule args_<index> for the arguments of `tool`, and the rules that it uses. `is_canonical`: see CallGrammarOptions.
void python_arguments(std::string& rules, std::size_t index, const Tool& tool, bool is_canonical);
void tagged_arguments(std::string& rules, const ArgumentTags& tags, std::size_t index, const Tool& tool, bool is_canonical);

// Add the rule any_args for arguments with any names and values.
void any_python_arguments(std::string& rules, bool is_canonical);
void any_tagged_arguments(std::string& rules, const ArgumentTags& tags);

}  // namespace quire
