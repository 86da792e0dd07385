#pragma once
// Reads which tools a chat request has, and whether they must be called.
#include <boost/json/value.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/request/object_reader.h"
#include "text/tool_calls/tool.h"

namespace quire {

struct ToolUse {
  enum class Choice : std::uint8_t { none, automatic, required };
  Choice choice = Choice::none;
  bool parallel = true;
  std::vector<Tool> tools;  // tools that may be called
};

// Returns the type of a tool that is not a client's function ("web_search", "namespace", "mcp", ...): the server would have to run it.
// Empty for functions, tools without a type, and misspellings of "function".
[[nodiscard]] std::string_view foreign_type(const boost::json::value& tool);

// Reads tools, tool_choice and parallel_tool_calls. Errors go to the reader. Tools of a foreign type are left out; if tool_choice demands
// one, the request is refused. `shown`: the other tools for the template, or null.
[[nodiscard]] ToolUse read_tool_use(ObjectReader& reader, boost::json::value& shown);

}  // namespace quire
