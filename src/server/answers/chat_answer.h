#pragma once
// Parses a chat's answer into text, reasoning and tool calls.
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tool_calls/answer_parser.h"

namespace quire {

struct ChatAnswerOptions {
  AnswerParserOptions parser;
  bool includes_reasoning = true;
  bool is_stream = false;  // true: every piece becomes a part; false: adjacent parts of one kind are merged
};

// Owned by one thread at a time.
class ChatAnswer {
 public:
  // `format` and `tools` must outlive this object.
  ChatAnswer(const CallFormat& format, const std::vector<Tool>& tools, ChatAnswerOptions options);

  void feed(std::string_view text);
  // Ends the text. `is_truncated`: a limit or a stop string ended the text, not the model.
  void finish(bool is_truncated);

  // Returns whether the answer has tool calls and all of them are complete.
  [[nodiscard]] bool calls_tools() const { return parser_->num_calls() > 0 && !has_truncated_call_; }
  [[nodiscard]] bool is_thinking() const { return parser_->is_thinking(); }
  // Returns the parts since the last forget_parts().
  [[nodiscard]] const std::vector<AnswerPart>& parts() const { return parts_; }
  void forget_parts() { parts_.clear(); }

 private:
  void take_parts();

  ChatAnswerOptions options_;
  std::unique_ptr<AnswerParser> parser_;
  std::vector<AnswerPart> parts_;
  bool has_truncated_call_ = false;
};

}  // namespace quire
