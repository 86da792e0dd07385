#pragma once
// A tool of a request, with the data that calls and prompts need.
#include <algorithm>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

struct Tool {
  std::string name;
  boost::json::value parameters = nullptr;  // a JSON schema of an object; null: any object
  bool strict = false;                      // the grammar must enforce the whole schema
  std::size_t index = 0;                    // index in the client's list of tools
};

// Returns the tool with this name, or null.
[[nodiscard]] inline const Tool* find_tool(const std::vector<Tool>& tools, std::string_view name) {
  const auto found = std::ranges::find(tools, name, &Tool::name);
  return found == tools.end() ? nullptr : &*found;
}

}  // namespace quire
