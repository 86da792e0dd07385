#include "server/api/openai/chat_fields.h"

#include <fmt/format.h>

#include <utility>

#include "base/json_text.h"
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
  std::string out = R"("content":)" + (is_null ? "null" : json_string(content));
  if (!reasoning.empty()) out += R"(,"reasoning_content":)" + json_string(reasoning);
  for (const MessageOfParts::Call& call : calls) {
    out += &call == calls.data() ? R"(,"tool_calls":[)" : ",";
    out += fmt::format(R"({{"id":{},"type":"function","function":{{"name":{},"arguments":{}}}}})", json_string(call.id),
                       json_string(call.name), json_string(call.arguments));
  }
  if (!calls.empty()) out += ']';
  return out;
}

// The order is OpenAI's: a call's id and name come first, with empty arguments. A call that breaks off cannot be taken back. Its text
// follows as content, and the finish reason counts only complete calls.
std::string delta_of(const AnswerPart& part, const std::string& call_ids) {
  switch (part.kind) {
    case AnswerPart::Kind::content:
      return fmt::format(R"({{"content":{}}})", json_string(part.text));
    case AnswerPart::Kind::reasoning:
      return fmt::format(R"({{"reasoning_content":{}}})", json_string(part.text));
    case AnswerPart::Kind::call:
      return fmt::format(R"({{"tool_calls":[{{"index":{},"id":{},"type":"function","function":{{"name":{},"arguments":""}}}}]}})",
                         part.call, json_string(call_id(call_ids, part.call)), json_string(part.text));
    case AnswerPart::Kind::arguments:
      return fmt::format(R"({{"tool_calls":[{{"index":{},"function":{{"arguments":{}}}}}]}})", part.call, json_string(part.text));
    case AnswerPart::Kind::call_end:
    case AnswerPart::Kind::call_broken:
    case AnswerPart::Kind::call_truncated:
      return {};
  }
  return {};
}

}  // namespace quire
