#pragma once
// Items of /v1/responses as messages of a chat.
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <functional>
#include <string_view>

#include "quire/base/error.h"

namespace quire {

// An item that an earlier answer has told, by its id.
using FindItem = std::function<Result<boost::json::object>(std::string_view id)>;

// Appends what `items` say to `messages`. What the model has thought, said and called in a row is one message. Errors name "input[i]...".
[[nodiscard]] Result<void> append_items(const boost::json::array& items, const FindItem& find, boost::json::array& messages);

}  // namespace quire
