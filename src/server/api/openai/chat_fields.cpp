#include "server/api/openai/chat_fields.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "server/answers/function_call.h"
#include "server/http/answer_id.h"

namespace quire {

namespace {

std::string call_id(const std::string& call_ids, std::uint32_t number) {
  return fmt::format("{}{}", call_ids, number);
}

struct MessageOfParts {
  struct Call {
    std::string id, name, arguments;
  };
  std::string content, reasoning;
  std::vector<Call> calls;

  void add(const AnswerPart& part, const std::string& call_ids) {
    switch (part.kind) {
      case AnswerPart::Kind::content:
        content += part.text;
        return;
      case AnswerPart::Kind::reasoning:
        reasoning += part.text;
        return;
      case AnswerPart::Kind::call:
        calls.push_back({call_id(call_ids, part.call), part.text, {}});
        return;
      case AnswerPart::Kind::arguments:
        calls.back().arguments += part.text;
        return;
      case AnswerPart::Kind::call_end:
      case AnswerPart::Kind::call_truncated:
        return;
      case AnswerPart::Kind::call_broken:
        calls.pop_back();
        return;
    }
  }
};

}  // namespace

std::string call_ids(const AnswerHead& head, std::uint32_t choice) {
  return fmt::format("call_{}_{}_", unique_part(head.id), choice);
}

std::string message_fields(const std::vector<AnswerPart>& parts, const std::string& call_ids) {
  MessageOfParts message;
  for (const AnswerPart& part : parts) message.add(part, call_ids);
  const auto& [content, reasoning, calls] = message;
  const bool is_null = content.empty() && (!calls.empty() || !reasoning.empty());
  std::string out;
  JsonWriter json(out);
  json.field("content", is_null ? std::nullopt : std::optional(content));
  if (!reasoning.empty()) json.field("reasoning_content", reasoning);
  if (calls.empty()) return out;
  json.begin_array("tool_calls");
  for (const MessageOfParts::Call& call : calls) write_function_call(json, call.id, call.name, call.arguments);
  json.end_array();
  return out;
}

// Returns a tool call in OpenAI's order: id and name come first, with empty arguments. A stream cannot retract a call that turns out to be
// invalid. The text of such a call follows as content, and the finish reason considers only complete calls.
std::string delta_fields(const AnswerPart& part, const std::string& call_ids) {
  std::string out;
  JsonWriter json(out);
  switch (part.kind) {
    case AnswerPart::Kind::content:
      json.field("content", part.text);
      break;
    case AnswerPart::Kind::reasoning:
      json.field("reasoning_content", part.text);
      break;
    case AnswerPart::Kind::call:
      json.begin_array("tool_calls").begin_object().field("index", part.call).field("id", call_id(call_ids, part.call));
      json.field("type", "function").begin_object("function").field("name", part.text).field("arguments", "").end_object();
      json.end_object().end_array();
      break;
    case AnswerPart::Kind::arguments:
      json.begin_array("tool_calls").begin_object().field("index", part.call);
      json.begin_object("function").field("arguments", part.text).end_object().end_object().end_array();
      break;
    case AnswerPart::Kind::call_end:
    case AnswerPart::Kind::call_broken:
    case AnswerPart::Kind::call_truncated:
      break;
  }
  return out;
}

}  // namespace quire
