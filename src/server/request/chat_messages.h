#pragma once
// The conversation of a chat request in the form that chat templates read.
#include <boost/json/object.hpp>

#include "server/request/completion_request.h"
#include "server/request/object_reader.h"

namespace quire {

// Reads messages, chat_template_kwargs, add_generation_prompt, continue_final_message and reasoning_effort. Errors go to the reader. The
// tools are read by read_tool_use().
[[nodiscard]] ChatPrompt read_chat_prompt(ObjectReader& reader, const ImageReading& image_reading = {},
                                          const CancellationPoint* cancellation = nullptr);

}  // namespace quire
