#include "server/answers/chat_answer.h"

#include <utility>

namespace quire {

namespace {

bool joins(const AnswerPart& part, const AnswerPart& next) {
  using Kind = AnswerPart::Kind;
  const bool is_text = next.kind == Kind::content || next.kind == Kind::reasoning || next.kind == Kind::arguments;
  const bool is_next = next.kind != Kind::content || part.end == next.begin;
  return is_text && is_next && part.kind == next.kind && part.call == next.call;
}

}  // namespace

ChatAnswer::ChatAnswer(const CallFormat& format, const std::vector<Tool>& tools, ChatAnswerOptions options)
    : options_(options), parser_(make_answer_parser(format, tools, options_.parser)) {}

void ChatAnswer::feed(std::string_view text) {
  parser_->feed(text);
  take_parts();
}

void ChatAnswer::finish(bool is_truncated) {
  parser_->finish(is_truncated);
  take_parts();
}

void ChatAnswer::take_parts() {
  for (AnswerPart& part : parser_->take_parts()) {
    if (part.kind == AnswerPart::Kind::reasoning && !options_.includes_reasoning) continue;
    has_truncated_call_ |= part.kind == AnswerPart::Kind::call_truncated;
    if (!options_.is_stream && !parts_.empty() && joins(parts_.back(), part)) {
      parts_.back().text += part.text;
      parts_.back().end = part.end;
    } else {
      parts_.push_back(std::move(part));
    }
  }
}

}  // namespace quire
