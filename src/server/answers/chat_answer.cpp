#include "server/answers/chat_answer.h"

#include <fmt/format.h>

#include <utility>

#include "base/json_text.h"

namespace quire {

ChatAnswer::ChatAnswer(const CallFormat& format, const std::vector<Tool>& tools, ChatAnswerOptions options)
    : options_(std::move(options)), parser_(format, tools, options_.parser) {}

void ChatAnswer::feed(std::string_view text) {
  parser_.feed(text);
  take_parts();
}

void ChatAnswer::finish() {
  parser_.finish();
  take_parts();
}

void ChatAnswer::take_parts() {
  for (AnswerPart& part : parser_.take_parts()) {
    if (part.kind == AnswerPart::Kind::reasoning && !options_.tells_thoughts) continue;
    if (options_.take_part)
      options_.take_part(part);
    else if (options_.is_stream)
      tell(part);
    else
      keep(part);
  }
}

std::string ChatAnswer::call_id(std::uint32_t number) const {
  return fmt::format("{}{}", options_.call_ids, number);
}

void ChatAnswer::keep(AnswerPart& part) {
  switch (part.kind) {
    case AnswerPart::Kind::content:
      content_ += part.text;
      return;
    case AnswerPart::Kind::reasoning:
      reasoning_ += part.text;
      return;
    case AnswerPart::Kind::call:
      calls_.push_back({part.call, call_id(part.call), std::move(part.text), {}});
      return;
    case AnswerPart::Kind::arguments:
      calls_.back().arguments += part.text;
      return;
    case AnswerPart::Kind::call_end:
      return;
    case AnswerPart::Kind::call_broken:
      calls_.pop_back();
      return;
  }
}

// As OpenAI's: a call's id and name come first, with empty arguments. One that breaks off cannot be taken back: its text follows as
// content, and the finish reason counts only those that are whole.
void ChatAnswer::tell(const AnswerPart& part) {
  switch (part.kind) {
    case AnswerPart::Kind::content:
      deltas_.push_back(fmt::format(R"({{"content":{}}})", json_string(part.text)));
      return;
    case AnswerPart::Kind::reasoning:
      deltas_.push_back(fmt::format(R"({{"reasoning_content":{}}})", json_string(part.text)));
      return;
    case AnswerPart::Kind::call:
      deltas_.push_back(
          fmt::format(R"({{"tool_calls":[{{"index":{},"id":{},"type":"function","function":{{"name":{},"arguments":""}}}}]}})", part.call,
                      json_string(call_id(part.call)), json_string(part.text)));
      return;
    case AnswerPart::Kind::arguments:
      deltas_.push_back(
          fmt::format(R"({{"tool_calls":[{{"index":{},"function":{{"arguments":{}}}}}]}})", part.call, json_string(part.text)));
      return;
    case AnswerPart::Kind::call_end:
    case AnswerPart::Kind::call_broken:
      return;
  }
}

std::string ChatAnswer::message_fields() const {
  const bool is_null = content_.empty() && (!calls_.empty() || !reasoning_.empty());
  std::string out = R"("content":)" + (is_null ? "null" : json_string(content_));
  if (!reasoning_.empty()) out += R"(,"reasoning_content":)" + json_string(reasoning_);
  for (const Call& call : calls_) {
    out += &call == calls_.data() ? R"(,"tool_calls":[)" : ",";
    out += fmt::format(R"({{"id":{},"type":"function","function":{{"name":{},"arguments":{}}}}})", json_string(call.id),
                       json_string(call.name), json_string(call.arguments));
  }
  if (!calls_.empty()) out += ']';
  return out;
}

}  // namespace quire
