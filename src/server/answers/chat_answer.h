#pragma once
// A chat's answer as the API tells it: text, what the model thought, and calls of tools.
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tool_calls/answer_parser.h"

namespace quire {

struct ChatAnswerOptions {
  AnswerParserOptions parser;
  bool tells_thoughts = true;
  bool is_stream = false;
  std::string call_ids;                                   // what ids of calls begin with; no other answer's do
  std::function<void(const AnswerPart&)> take_part = {};  // gets all of it instead
};

// Owned by one thread at a time.
class ChatAnswer {
 public:
  struct Call {
    std::uint32_t number = 0;
    std::string id, name, arguments;
  };

  // `format` and `tools` must outlive it.
  ChatAnswer(const CallFormat& format, const std::vector<Tool>& tools, ChatAnswerOptions options);

  void feed(std::string_view text);
  // The end of the text.
  void finish();

  // There are calls, and they are whole.
  [[nodiscard]] bool calls_tools() const { return parser_.num_calls() > 0; }
  [[nodiscard]] bool is_thinking() const { return parser_.is_thinking(); }
  // The fields of a message behind its role: "content":... and the others that there are.
  [[nodiscard]] std::string message_fields() const;
  // Streams: of each delta since the last time the object.
  [[nodiscard]] std::vector<std::string> take_deltas() { return std::exchange(deltas_, {}); }
  [[nodiscard]] bool has_deltas() const { return !deltas_.empty(); }

 private:
  void take_parts();
  void keep(AnswerPart& part);
  void tell(const AnswerPart& part);
  [[nodiscard]] std::string call_id(std::uint32_t number) const;

  ChatAnswerOptions options_;
  AnswerParser parser_;
  std::string content_, reasoning_;
  std::vector<Call> calls_;
  std::vector<std::string> deltas_;
};

}  // namespace quire
