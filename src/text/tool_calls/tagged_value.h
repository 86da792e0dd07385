#pragma once
// Reads values that a model writes as plain text between tags. The tool's schema gives their types.
#include <boost/json/value.hpp>
#include <string>
#include <string_view>

#include "text/tool_calls/tool.h"

namespace quire {

// Returns the schema of an argument, or null if the tool does not define it. `tool` may be null.
[[nodiscard]] const boost::json::value* schema_of_argument(const Tool* tool, std::string_view key);

// Returns whether a value of this schema may be a string, which the model writes without quotes.
[[nodiscard]] bool may_be_text(const boost::json::value* schema);

// Returns the value as JSON text: the value of a Python or JSON literal. It is a string if the schema asks for one, if there is no schema,
// or if the text is not a literal.
[[nodiscard]] std::string tagged_value(std::string_view text, const boost::json::value* schema);

}  // namespace quire
