#pragma once
// Converts items of /v1/responses to chat messages.
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <functional>
#include <string_view>

#include "quire/base/error.h"

namespace quire {

// Returns the item of an earlier answer with this id.
using FindItem = std::function<Result<boost::json::object>(std::string_view id)>;

// Converts `items` to chat messages and appends them. Consecutive reasoning, text and calls of the model become one message. Errors name
// "input[i]...".
[[nodiscard]] Result<void> append_items(const boost::json::array& items, const FindItem& find, boost::json::array& messages);

}  // namespace quire
