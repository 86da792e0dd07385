#pragma once
// Writes the answer to a chat with OpenAI's fields: content, reasoning_content, tool_calls.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/answers/answer.h"
#include "text/tool_calls/answer_part.h"

namespace quire {

// Returns the prefix of the ids of a choice's tool calls. The prefix is unique to the answer.
[[nodiscard]] std::string call_ids(const AnswerHead& head, std::uint32_t choice);

// Returns the fields of a message after its role: "content" and the other fields that are not empty.
[[nodiscard]] std::string message_fields(const std::vector<AnswerPart>& parts, const std::string& call_ids);

// Returns the fields of a stream's delta, or an empty string if there is nothing to write.
[[nodiscard]] std::string delta_fields(const AnswerPart& part, const std::string& call_ids);

}  // namespace quire
