#pragma once
// Parses answers in OpenAI's Harmony format, which gpt-oss writes: messages, each with a head that names its channel and recipient. A
// parser is owned by one thread at a time.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tool_calls/answer_parser.h"
#include "text/tool_calls/json_object.h"

namespace quire {

// Messages of the channel "analysis" are reasoning, messages to functions are calls, and all other messages are content. Heads are never
// returned, even incomplete ones. Text without a head is content.
class HarmonyParser final : public AnswerParser {
 public:
  // `tools` must outlive the parser.
  HarmonyParser(const std::vector<Tool>& tools, AnswerParserOptions options);

  void feed(std::string_view text) override;
  void finish(bool is_truncated) override;
  [[nodiscard]] std::vector<AnswerPart> take_parts() override { return parts_.take(); }
  [[nodiscard]] bool is_thinking() const override { return mode_ == Mode::reasoning; }
  [[nodiscard]] std::uint32_t num_calls() const override { return calls_.num_ended(); }

 private:
  // head: before the text of a message. arguments: before and within the arguments of a call. after_arguments: after the arguments of a
  // call.
  enum class Mode : std::uint8_t { head, reasoning, content, arguments, after_arguments };

  void step(char byte);
  void take_delimiter(std::string_view delimiter);
  // `end` is the number of bytes of the answer up to and including this byte.
  void take_text(char byte, std::size_t end);
  void take_head_delimiter(std::string_view delimiter, bool ends);
  void take_head_text(char byte);
  // Turns the text that was read as a head into content, because the model has written a message without a head.
  void reject_head();
  void begin_head();
  void take_argument(char byte);
  void begin_message();
  // by_delimiter: a delimiter ends the message. Otherwise the end of the answer or another message ends it. is_truncated: see finish().
  void end_message(bool by_delimiter, bool is_truncated = false);
  // Returns the function that the head names. Returns an empty text if the head names no function, or if calls are read as text.
  [[nodiscard]] std::string called_function() const;
  // Adds content that ends at `text_end_`.
  void append_text(std::string_view text) { parts_.append_text(text, text_end_); }
  // Turns the bytes of the current call into content, because they are not a valid call. A dropped call stays dropped.
  void reject_call();

  const std::vector<Tool>* tools_;
  AnswerParserOptions options_;
  AnswerParts parts_;
  CallWriter calls_;
  Mode mode_;
  std::size_t num_bytes_ = 0;   // bytes of the answer so far
  std::size_t text_end_ = 0;    // end of the latest text in the answer, in bytes
  bool has_reasoning_ = false;  // an earlier message was reasoning
  bool has_messages_ = false;   // a message has ended
  std::string held_;            // text that may begin a delimiter
  std::string head_;
  bool head_has_delimiter_ = false;
  std::string name_, raw_;  // the function of the current call, and the bytes of its arguments
  JsonObject object_;
};

}  // namespace quire
