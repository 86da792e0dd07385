#pragma once
// Reads calls in one family of formats, byte by byte. A reader does not know the text around the calls. AnswerParser finds where calls
// begin, and returns bytes as text if they turn out not to be calls.
#include <memory>
#include <string_view>
#include <vector>

#include "text/tool_calls/answer_part.h"
#include "text/tool_calls/call_format.h"
#include "text/tool_calls/tool.h"

namespace quire {

enum class ByteStatus : std::uint8_t {
  more,      // the byte may belong to the calls
  settled,   // the byte and all bytes since the last call certainly belong to the calls
  complete,  // the byte is the last one of the calls
  failed     // the byte and all bytes that are not settled are text, not calls
};

class CallReader {
 public:
  virtual ~CallReader() = default;

  // Begins to read calls, either after the format's opening delimiter or before a first byte for which opens_with() returns true. In the
  // second case push() then gets this byte.
  virtual void begin() = 0;
  virtual ByteStatus push(char byte, CallWriter& out) = 0;
  // Returns whether an answer that begins with this byte may begin with calls.
  [[nodiscard]] virtual bool opens_with(char /*byte*/) const { return false; }
};

// Creates a reader. `format` and `tools` must outlive the reader.
[[nodiscard]] std::unique_ptr<CallReader> make_call_reader(const CallFormat& format, const std::vector<Tool>& tools);

[[nodiscard]] std::unique_ptr<CallReader> make_json_reader(const CallFormat& format, const std::vector<Tool>& tools);
[[nodiscard]] std::unique_ptr<CallReader> make_mistral_reader();
[[nodiscard]] std::unique_ptr<CallReader> make_section_reader(const CallFormat& format);
[[nodiscard]] std::unique_ptr<CallReader> make_pythonic_reader(const CallFormat& format, const std::vector<Tool>& tools);
[[nodiscard]] std::unique_ptr<CallReader> make_glm_reader(const CallFormat& format, const std::vector<Tool>& tools);
[[nodiscard]] std::unique_ptr<CallReader> make_xml_reader(const CallFormat& format, const std::vector<Tool>& tools);

// Returns whether the byte is white space in JSON.
[[nodiscard]] constexpr bool is_blank(char byte) {
  return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

}  // namespace quire
