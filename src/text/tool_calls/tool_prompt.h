#pragma once
// Writes tools and calls as text into messages, for templates that do not support tools or calls.
#include <boost/json/array.hpp>
#include <boost/json/value.hpp>
#include <string>
#include <vector>

#include "text/tool_calls/call_format.h"

namespace quire {

// Returns the text for a system message: the tools as the client sent them, and how to call them.
[[nodiscard]] std::string describe_tools(const CallFormat& format, const boost::json::array& tools);

// Returns the calls of an earlier answer in the model's format. `calls` are objects with a "function" that has a name and arguments (an
// object).
[[nodiscard]] std::string write_calls(const CallFormat& format, const boost::json::array& calls);

// Changes messages to a form that the template supports, as far as needed: calls and results become text, a system message describes the
// tools, and ids get nine letters and digits. `tools` is an array or null.
void adapt_messages(const CallFormat& format, const boost::json::value& tools, boost::json::array& messages);

}  // namespace quire
