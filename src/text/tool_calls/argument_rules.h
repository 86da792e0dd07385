#pragma once
// Builds the grammar rules for arguments that are not JSON, each value by its schema. `call_grammar` uses them.
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "text/tool_calls/tool.h"

namespace quire {

// More than a grammar may have. Rules that exceed it stay unfinished, so compiling the grammar fails.
inline constexpr std::size_t kMaxRuleBytes = std::size_t{4} << 20;

// Returns the number of properties in a tool's schema.
[[nodiscard]] std::size_t num_properties(const Tool& tool);

// How a format writes an argument as tags around a value. All members except `end_text` are or return bodies of rules.
struct ArgumentTags {
  std::function<std::string(std::string_view key)> head;  // the text before the value
  std::string any_head;                                   // like `head`, with any key
  std::string end, separator;                             // the end of a value, and the separator of arguments or nothing
  std::string end_text;                                   // the text of `end`; empty if it is a token
};

// Adds the rule args_<index> for the arguments of `tool`, and the rules that it uses. `is_canonical`: see CallGrammarOptions.
void python_arguments(std::string& rules, std::size_t index, const Tool& tool, bool is_canonical);
void tagged_arguments(std::string& rules, const ArgumentTags& tags, std::size_t index, const Tool& tool, bool is_canonical);

// Adds the rule any_args for arguments of any name and type.
void any_python_arguments(std::string& rules, bool is_canonical);
void any_tagged_arguments(std::string& rules, const ArgumentTags& tags);

}  // namespace quire
