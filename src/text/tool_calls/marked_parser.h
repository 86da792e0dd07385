#pragma once
// Parses answers that are text with delimiters around calls and reasoning. A parser is owned by one thread at a time.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tool_calls/answer_parser.h"
#include "text/tool_calls/call_reader.h"

namespace quire {

// Holds back text that may begin a delimiter. Also holds back white space before this text, and drops the white space if a delimiter or a
// call follows.
class MarkedParser final : public AnswerParser {
 public:
  // `format` and `tools` must outlive the parser.
  MarkedParser(const CallFormat& format, const std::vector<Tool>& tools, AnswerParserOptions options);

  void feed(std::string_view text) override;
  void finish(bool is_truncated) override;
  [[nodiscard]] std::vector<AnswerPart> take_parts() override { return parts_.take(); }
  [[nodiscard]] bool is_thinking() const override { return mode_ == Mode::reasoning; }
  [[nodiscard]] std::uint32_t num_calls() const override { return calls_.num_ended(); }

 private:
  // tentative: the reasoning contains an opening delimiter, and calls may follow it. start: the answer has only white space so far, so
  // reasoning may begin, or an answer that consists only of calls.
  enum class Mode : std::uint8_t { reasoning, tentative, start, text, calls };

  void step(char byte);
  void step_reasoning(char byte);
  void step_tentative(char byte);
  void begin_tentative();
  void read_tentative(char byte);
  // Passes the text held back since the delimiter to step() again. `is_reasoning`: the text belongs to the reasoning; otherwise the
  // reasoning ends before the text.
  void settle_tentative(bool is_reasoning);
  void step_text(char byte);
  void step_calls(char byte);
  void append_reasoning(char byte);
  // `end` is the number of bytes of the answer up to and including this byte.
  void append_text(char byte, std::size_t end);
  // Turns the first `num_bytes` held bytes into text or reasoning, because they do not begin a delimiter.
  void release(std::size_t num_bytes);
  void end_reasoning();
  void begin_calls();
  // Turns the bytes read since the last call into text, or drops them if the call is above the limit.
  void reject_call();
  void finish_calls(bool is_truncated);
  [[nodiscard]] bool has_delimiters() const { return !format_->open.empty() && format_->style != CallStyle::llama; }
  // Returns whether reasoning may begin. A model reasons once, at the beginning of its answer.
  [[nodiscard]] bool may_think() const { return mode_ == Mode::start && !has_reasoning_ && !format_->think_open.empty(); }
  [[nodiscard]] bool may_begin_delimiter(std::string_view text) const;

  const CallFormat* format_;
  const std::vector<Tool>* tools_;
  AnswerParserOptions options_;
  // Null if calls are read as text. Gets bytes only in the modes `calls` and `tentative`.
  std::unique_ptr<CallReader> reader_;
  AnswerParts parts_;
  CallWriter calls_;
  Mode mode_;
  std::size_t num_bytes_ = 0;  // bytes of the answer so far
  bool has_reasoning_ = false;
  bool has_reasoning_text_ = false;
  std::string held_;   // text that may begin a delimiter
  std::string space_;  // white space that is held back until the next text
  std::string raw_;    // bytes of the current calls, after the last call that ended
  // Used in the mode `tentative`: the text since the opening delimiter, and the end of this text if it may begin another delimiter.
  std::string tentative_text_, tentative_delimiter_;
  bool reads_tentative_ = false;  // the reader still reads a call
  // The calls that the reader finds in `tentative_text_`.
  AnswerParts found_parts_;
  CallWriter found_{found_parts_, std::numeric_limits<std::uint32_t>::max()};
  std::size_t num_settled_ = 0;  // offset in the answer; a delimiter that ends before it belongs to the reasoning
};

}  // namespace quire
