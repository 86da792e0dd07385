#pragma once
// Rules for arguments that are not JSON, each value by its own schema: the parts of `call_grammar` for such formats.
#include <cstddef>
#include <string>

#include "text/tool_calls/tool.h"

namespace quire {

// More than a grammar may have: what gets so long is left unfinished, and refused where it is compiled.
inline constexpr std::size_t kMaxRuleBytes = std::size_t{4} << 20;

// That a tool's schema names.
[[nodiscard]] std::size_t num_properties(const Tool& tool);

// Adds the rule args_<index>, and those it stands on: the arguments of that tool. `one_spelling`: CallGrammarOptions.
void python_arguments(std::string& rules, std::size_t index, const Tool& tool, bool one_spelling);
void xml_arguments(std::string& rules, std::size_t index, const Tool& tool, bool one_spelling);

// Adds the rule any_args: arguments of any name and kind.
void any_python_arguments(std::string& rules, bool one_spelling);
void any_xml_arguments(std::string& rules);

}  // namespace quire
