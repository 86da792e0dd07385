#pragma once
// Reads the tools of a chat request, and whether the answer must call one.
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
  std::vector<Tool> tools;  // tools that the answer may call
};

// Returns the type of a tool that the server would have to run ("web_search", "namespace", "mcp", ...). Returns an empty string for
// functions, tools without a type, and misspellings of "function".
[[nodiscard]] std::string_view foreign_type(const boost::json::value& tool);

// Reads tools, tool_choice and parallel_tool_calls. Reports errors to the reader. Drops tools of a foreign type, and refuses the request if
// tool_choice requires such a tool. `shown` receives the other tools for the template, or null.
[[nodiscard]] ToolUse read_tool_use(ObjectReader& reader, boost::json::value& shown);

}  // namespace quire
