#pragma once
// Splits an answer into reasoning, content and tool calls while its text arrives. A parser is owned by one thread at a time.
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
  std::uint32_t max_calls = std::numeric_limits<std::uint32_t>::max();  // further calls are dropped; 0: calls are read as text
};

// The parts do not depend on how the text is divided among the calls of feed(), if adjacent parts of one kind are joined. The parser holds
// back text that may begin a delimiter. Delimiters and dropped calls are not returned. A call that turns out to be invalid is returned as
// content.
class AnswerParser {
 public:
  virtual ~AnswerParser() = default;

  virtual void feed(std::string_view text) = 0;
  // Ends the text. `is_truncated`: a limit or a stop string ended the text. An open call then stays incomplete, and text at the end that
  // may begin a call is dropped.
  virtual void finish(bool is_truncated) = 0;
  // Returns the parts found since the previous call.
  [[nodiscard]] virtual std::vector<AnswerPart> take_parts() = 0;

  // Returns whether the next text is reasoning if no delimiter precedes it.
  [[nodiscard]] virtual bool is_thinking() const = 0;
  // Returns the number of calls that have ended, without dropped calls.
  [[nodiscard]] virtual std::uint32_t num_calls() const = 0;
};

// Creates the parser for `format`. `format` and `tools` must outlive the parser.
[[nodiscard]] std::unique_ptr<AnswerParser> make_answer_parser(const CallFormat& format, const std::vector<Tool>& tools,
                                                               AnswerParserOptions options);

}  // namespace quire
