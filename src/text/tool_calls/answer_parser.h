#pragma once
// An answer's text, as it comes, taken apart: what the model thinks, what it says, and its calls of tools. Owned by one thread at a time.
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
  bool in_thought = false;                                              // the prompt ends within a reasoning part
  std::uint32_t max_calls = std::numeric_limits<std::uint32_t>::max();  // further ones are text; 0: none is looked for
};

// However the text is cut, the parts are the same, neighbours of one kind joined. What may be the beginning of a mark is held back. All
// that belongs to no mark comes out: a call that breaks off as content.
class AnswerParser {
 public:
  virtual ~AnswerParser() = default;

  virtual void feed(std::string_view text) = 0;
  // The end of the text.
  virtual void finish() = 0;
  // Since the last time.
  [[nodiscard]] virtual std::vector<AnswerPart> take_parts() = 0;

  // What comes next is thought, unless a mark ends that.
  [[nodiscard]] virtual bool is_thinking() const = 0;
  // That have ended.
  [[nodiscard]] virtual std::uint32_t num_calls() const = 0;
};

// `format` and `tools` must outlive it.
[[nodiscard]] std::unique_ptr<AnswerParser> make_answer_parser(const CallFormat& format, const std::vector<Tool>& tools,
                                                               AnswerParserOptions options);

}  // namespace quire
