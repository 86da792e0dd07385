#pragma once
// What reads calls in one family of formats, byte by byte. A reader knows nothing of the text around them: `AnswerParser` finds where calls
// begin and gives back as text what turns out to be none.
#include <memory>
#include <string_view>
#include <vector>

#include "text/tool_calls/answer_part.h"
#include "text/tool_calls/call_format.h"
#include "text/tool_calls/tool.h"

namespace quire {

enum class Taken : std::uint8_t {
  more,     // the byte belongs to the calls
  settled,  // and with all that came behind the last call to it
  over,     // it was their last
  failed    // it and all that is not settled is text
};

class CallReader {
 public:
  virtual ~CallReader() = default;

  // Calls begin: behind the format's mark, or with a first byte for which opens_with() is true (which comes by push() then).
  virtual void begin() = 0;
  virtual Taken push(char byte, CallWriter& out) = 0;
  // Whether calls may begin with this byte, at the beginning of an answer.
  [[nodiscard]] virtual bool opens_with(char /*byte*/) const { return false; }
};

// `format` and `tools` must outlive it.
[[nodiscard]] std::unique_ptr<CallReader> make_call_reader(const CallFormat& format, const std::vector<Tool>& tools);

[[nodiscard]] std::unique_ptr<CallReader> make_json_reader(const CallFormat& format, const std::vector<Tool>& tools);
[[nodiscard]] std::unique_ptr<CallReader> make_mistral_reader();
[[nodiscard]] std::unique_ptr<CallReader> make_section_reader(const CallFormat& format);
[[nodiscard]] std::unique_ptr<CallReader> make_pythonic_reader(const CallFormat& format, const std::vector<Tool>& tools);
[[nodiscard]] std::unique_ptr<CallReader> make_xml_reader(const CallFormat& format, const std::vector<Tool>& tools);

// White space that JSON has.
[[nodiscard]] constexpr bool is_blank(char byte) {
  return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

}  // namespace quire
