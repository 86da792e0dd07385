#pragma once
// Rules for arguments that are not JSON, each value by its own schema: the parts of `call_grammar` for such formats.
#include <cstddef>
#include <string>

#include "text/tool_calls/tool.h"

namespace quire {

// Adds rules to `rules` and says the body that stands for the arguments of tool number `index`.
[[nodiscard]] std::string python_arguments(std::string& rules, std::size_t index, const Tool& tool);
[[nodiscard]] std::string xml_arguments(std::string& rules, std::size_t index, const Tool& tool);

}  // namespace quire
