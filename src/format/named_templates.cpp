#include "format/named_templates.h"

#include <utility>

namespace quire {

std::string with_tool_use(std::string by_default, std::string tool_use) {
  if (tool_use.empty()) return by_default;
  if (by_default.empty()) return tool_use;
  // Jinja removes one line feed from the end of a template.
  for (std::string* text : {&by_default, &tool_use})
    if (text->ends_with('\n')) text->pop_back();
  // "+" keeps the white space before and after a tag.
  return "{%+ if tools +%}" + tool_use + "{%+ else +%}" + by_default + "{%+ endif +%}";
}

}  // namespace quire
