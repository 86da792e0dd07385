#pragma once
// A chat's answer taken apart: text, what the model thought, and calls of tools.
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tool_calls/answer_parser.h"

namespace quire {

struct ChatAnswerOptions {
  AnswerParserOptions parser;
  bool tells_thoughts = true;
  bool is_stream = false;  // parts stay as they come; else neighbours become one
};

// Owned by one thread at a time.
class ChatAnswer {
 public:
  // `format` and `tools` must outlive it.
  ChatAnswer(const CallFormat& format, const std::vector<Tool>& tools, ChatAnswerOptions options);

  void feed(std::string_view text);
  // The end of the text.
  void finish();

  // There are calls, and they are whole.
  [[nodiscard]] bool calls_tools() const { return parser_->num_calls() > 0; }
  [[nodiscard]] bool is_thinking() const { return parser_->is_thinking(); }
  // Not forgotten yet.
  [[nodiscard]] const std::vector<AnswerPart>& parts() const { return parts_; }
  void forget_parts() { parts_.clear(); }

 private:
  void take_parts();

  ChatAnswerOptions options_;
  std::unique_ptr<AnswerParser> parser_;
  std::vector<AnswerPart> parts_;
};

}  // namespace quire
