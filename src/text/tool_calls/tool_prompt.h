#pragma once
// What templates that know nothing of tools are given in their stead: text in messages.
#include <boost/json/array.hpp>
#include <boost/json/value.hpp>
#include <string>
#include <vector>

#include "text/tool_calls/call_format.h"

namespace quire {

// For a system message: the tools, as the client sent them, and how to call them.
[[nodiscard]] std::string describe_tools(const CallFormat& format, const boost::json::array& tools);

// The calls of an earlier answer in the model's format. `calls`: objects with a "function" that has a name and arguments (an object).
[[nodiscard]] std::string write_calls(const CallFormat& format, const boost::json::array& calls);

// Messages as the template can digest them: calls and results as text where it knows neither, the tools described where it does not show
// them, ids of nine letters and digits where it wants such. `tools`: an array, or null.
void adapt_messages(const CallFormat& format, const boost::json::value& tools, boost::json::array& messages);

}  // namespace quire
