#pragma once
// Reads values that a model writes as plain text between tags. The tool's schema determines their types.
#include <boost/json/value.hpp>
#include <string>
#include <string_view>

#include "text/tool_calls/tool.h"

namespace quire {

// Returns the schema of an argument, or null if the tool does not define it. `tool` may be null.
[[nodiscard]] const boost::json::value* schema_of_argument(const Tool* tool, std::string_view key);

// Returns whether a value of this schema may be a string. A model writes such strings without quotes.
[[nodiscard]] bool may_be_text(const boost::json::value* schema);

// Returns the JSON text of a value. The value is a string if the schema requires one, if there is no schema, or if `text` is not a literal.
// Otherwise it is the value of the Python or JSON literal.
[[nodiscard]] std::string tagged_value(std::string_view text, const boost::json::value* schema);

}  // namespace quire
