#pragma once
// Splits an answer's text, as it arrives, into reasoning, content and tool calls. One thread at a time owns a parser.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tool_calls/answer_part.h"
#include "text/tool_calls/call_format.h"
#include "text/tool_calls/tool.h"

namespace quire {

struct AnswerParserOptions {
  bool in_reasoning = false;                                            // the prompt ends within a reasoning part
  std::uint32_t max_calls = std::numeric_limits<std::uint32_t>::max();  // further calls are dropped; 0: calls are not looked for
};

// The parts do not depend on how the text is split, if neighbours of one kind are joined. The parser holds back text that may begin a
// delimiter. It returns all text except delimiters and dropped calls. A call that the model breaks off is returned as content.
class AnswerParser {
 public:
  virtual ~AnswerParser() = default;

  virtual void feed(std::string_view text) = 0;
  // Ends the text. `is_truncated`: a limit or a stop string ended it. An open call then stays incomplete, and text that may have become a
  // call is dropped.
  virtual void finish(bool is_truncated) = 0;
  // Returns the parts found since the previous call.
  [[nodiscard]] virtual std::vector<AnswerPart> take_parts() = 0;

  // Returns whether the next text is reasoning, unless a delimiter ends it.
  [[nodiscard]] virtual bool is_thinking() const = 0;
  // Returns the number of calls that have ended.
  [[nodiscard]] virtual std::uint32_t num_calls() const = 0;
};

// Creates the parser for `format`. `format` and `tools` must outlive it.
[[nodiscard]] std::unique_ptr<AnswerParser> make_answer_parser(const CallFormat& format, const std::vector<Tool>& tools,
                                                               AnswerParserOptions options);

}  // namespace quire
