#pragma once
// A chat's answer in OpenAI's fields: content, reasoning_content, tool_calls.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/answers/answer.h"
#include "text/tool_calls/answer_part.h"

namespace quire {

// What ids of the calls of a choice begin with; no other answer's do.
[[nodiscard]] std::string call_ids(const AnswerHead& head, std::uint32_t choice);

// The fields of a message behind its role: "content":... and the others that there are.
[[nodiscard]] std::string message_fields(const std::vector<AnswerPart>& parts, const std::string& call_ids);

// Streams: the object of a delta; empty where there is none to tell.
[[nodiscard]] std::string delta_of(const AnswerPart& part, const std::string& call_ids);

}  // namespace quire
