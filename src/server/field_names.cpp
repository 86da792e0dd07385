#include "server/field_names.h"

#include <span>
#include <string_view>
#include <utility>

namespace quire {

namespace {

using Name = std::pair<std::string_view, std::string_view>;  // the chat's, and its own

// Longer ones before those that they begin with.
constexpr Name kOfResponses[] = {
    {"response_format.json_schema", "text.format"},
    {"response_format", "text.format"},
    {"max_completion_tokens", "max_output_tokens"},
    {"max_tokens", "max_output_tokens"},
    {"reasoning_effort", "reasoning.effort"},
    {"truncate_prompt_tokens", "truncation"},
    {"messages", "input"},
};
constexpr Name kOfMessages[] = {
    {"response_format.json_schema", "output_config.format"},
    {"response_format", "output_config.format"},
    {"max_completion_tokens", "max_tokens"},
    {"reasoning_effort", "output_config.effort"},
    {"parallel_tool_calls", "tool_choice.disable_parallel_tool_use"},
    {"stop", "stop_sequences"},
};

}  // namespace

Error in_words_of(AnswerShape shape, Error error) {
  if (shape == AnswerShape::openai) return error;
  const bool is_response = shape == AnswerShape::response;
  // The places of a chat's messages are not those of what was sent.
  if (error.field.starts_with("messages[")) error.field = "messages";
  for (const auto& [chats, own] : is_response ? std::span<const Name>(kOfResponses) : std::span<const Name>(kOfMessages)) {
    if (!error.field.starts_with(chats)) continue;
    if (error.field.size() > chats.size() && error.field[chats.size()] != '.') continue;
    error.field.replace(0, chats.size(), own);
    return error;
  }
  // tools[0].function.name
  if (const std::size_t at = error.field.find("].function"); error.field.starts_with("tools[") && at != std::string::npos)
    error.field.erase(at + 1, std::string_view(".function").size());
  return error;
}

}  // namespace quire
