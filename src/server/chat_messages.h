#pragma once
// The conversation of a chat request in the form that chat templates read.
#include <boost/json/object.hpp>

#include "server/object_reader.h"
#include "server/openai_request.h"

namespace quire {

// Reads messages, tools, tool_choice, chat_template_kwargs and add_generation_prompt; errors go to the reader.
[[nodiscard]] ChatPrompt read_chat_prompt(ObjectReader& reader);

}  // namespace quire
