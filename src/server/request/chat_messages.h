#pragma once
// Converts the conversation of a chat request to the format that chat templates read.
#include <boost/json/object.hpp>

#include "server/request/completion_request.h"
#include "server/request/object_reader.h"

namespace quire {

// Reads messages, chat_template_kwargs, add_generation_prompt, continue_final_message and reasoning_effort. Reports errors to the reader.
// read_tool_use() reads the tools.
[[nodiscard]] ChatPrompt read_chat_prompt(ObjectReader& reader, const ImageReading& image_reading = {},
                                          const CancellationPoint* cancellation = nullptr);

}  // namespace quire
