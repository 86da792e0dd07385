#pragma once
// What a chat request says of tools: which ones, and whether they must be called.
#include <boost/json/value.hpp>
#include <cstdint>
#include <string>
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

// Reads tools, tool_choice and parallel_tool_calls; errors go to the reader. `shown`: the tools as the template gets them, or null.
[[nodiscard]] ToolUse read_tool_use(ObjectReader& reader, boost::json::value& shown);

}  // namespace quire
