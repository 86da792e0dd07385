#pragma once
// Reads the fields with which clients of other servers enable and disable thinking in a chat.
#include <boost/json/object.hpp>

#include "server/request/completion_request.h"
#include "server/request/object_reader.h"

namespace quire {

// Copies the effort in OpenRouter's {"reasoning": {"effort": ...}} to reasoning_effort, if reasoning_effort is not set.
void take_reasoning(boost::json::object& body);

// Reads enable_thinking, think, thinking and reasoning. Sets the template's enable_thinking, unless chat_template_kwargs has set it.
void read_thinking(ObjectReader& reader, CompletionRequest& request);

}  // namespace quire
