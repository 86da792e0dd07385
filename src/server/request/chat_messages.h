#pragma once
// The conversation of a chat request in the form that chat templates read.
#include <boost/json/object.hpp>

#include "server/request/completion_request.h"
#include "server/request/object_reader.h"

namespace quire {

// Reads messages, chat_template_kwargs, add_generation_prompt, continue_final_message and reasoning_effort; errors go to the reader. The
// tools are read_tool_use()'s.
[[nodiscard]] ChatPrompt read_chat_prompt(ObjectReader& reader, const PictureReading& pictures = {});

}  // namespace quire
