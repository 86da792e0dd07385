#pragma once
// The conversation of a chat request in the form that chat templates read.
#include <boost/json/object.hpp>

#include "server/object_reader.h"
#include "server/openai_request.h"

namespace quire {

// Reads messages, chat_template_kwargs, add_generation_prompt, continue_final_message and reasoning_effort; errors go to the reader. The
// tools are read_tool_use()'s.
[[nodiscard]] ChatPrompt read_chat_prompt(ObjectReader& reader);

}  // namespace quire
