#pragma once
// What a chat request says of tools: which ones, and whether they must be called.
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
  std::vector<Tool> tools;  // that may be called
};

// The type of a tool that is none of the client's functions ("web_search", "namespace", "mcp", ...), which the server would have to run;
// empty for functions, for what has no type, and for slips.
[[nodiscard]] std::string_view foreign_type(const boost::json::value& tool);

// Reads tools, tool_choice and parallel_tool_calls; errors go to the reader. Tools of a foreign type are left out, and refused where
// tool_choice demands one. `shown`: the others as the template gets them, or null.
[[nodiscard]] ToolUse read_tool_use(ObjectReader& reader, boost::json::value& shown);

}  // namespace quire
