#pragma once
// The tools of a request, as its calls and its prompt need them.
#include <algorithm>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

struct Tool {
  std::string name;
  boost::json::value parameters = nullptr;  // a JSON schema of an object; null: of any
  bool strict = false;                      // the schema must be held word by word
};

// By name; null if there is none.
[[nodiscard]] inline const Tool* find_tool(const std::vector<Tool>& tools, std::string_view name) {
  const auto found = std::ranges::find(tools, name, &Tool::name);
  return found == tools.end() ? nullptr : &*found;
}

}  // namespace quire
