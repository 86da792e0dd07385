#pragma once
// Describes how a model writes tool calls and reasoning. The description is derived from the chat template.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

enum class CallStyle : std::uint8_t {
  plain,        // {"name": ..., "arguments": {...}} as the whole answer, or a list of these; requested of models without a format
  llama,        // {"name": ..., "parameters": {...}}, optionally after <|python_tag|>
  marked,       // the objects of `plain` between delimiters: each one (Hermes, Qwen: <tool_call>) or one list (Granite, Nemotron, Apriel)
  mistral,      // [TOOL_CALLS] and a list of the objects of `plain`
  mistral_v11,  // [TOOL_CALLS]name[ARGS]{...}
  deepseek,     // R1, V3: sections; the arguments are in a Markdown fence
  deepseek_v31,
  kimi,
  pythonic,  // [name(key=value, ...), ...], optionally between delimiters (Llama 4, LFM2)
  xml,       // <function=name><parameter=key>value (Qwen3-Coder, Seed-OSS)
  glm,       // name<arg_key>key</arg_key><arg_value>value</arg_value> (GLM-4.5 and later)
  harmony    // messages with heads that name channels and functions (gpt-oss)
};

// The format of a model's calls and reasoning. Created once per template (detect_call_format) and never changed.
struct CallFormat {
  CallStyle style = CallStyle::plain;
  std::string open, close;              // delimiters around calls; empty: no delimiters
  bool is_list = false;                 // marked: all calls of an answer are one list
  bool is_tight = false;                // xml, glm: no line feeds around the values of arguments
  std::string think_open, think_close;  // delimiters around the reasoning before an answer; empty: no reasoning
  bool shows_tools = false;             // the template reads `tools`
  bool shows_calls = false;             // the template writes the calls of earlier turns
  bool shows_results = false;           // the template supports the role "tool"
  bool wants_short_ids = false;         // the template rejects call ids that do not consist of nine letters and digits
  bool wants_text_arguments = false;    // the template concatenates calls' arguments to text, so they must be JSON text instead of objects
  bool reads_effort = false;            // the template reads reasoning_effort

  // Returns all texts that may be control tokens of the vocabulary but must stay in the answer's text.
  [[nodiscard]] std::vector<std::string> delimiters() const;
};

[[nodiscard]] CallFormat detect_call_format(std::string_view chat_template);

// Returns whether a prompt ends within a reasoning part, which the answer then continues.
[[nodiscard]] bool ends_in_reasoning(const CallFormat& format, std::string_view prompt);

// The delimiters of GLM's arguments.
inline constexpr std::string_view kArgKey = "<arg_key>", kArgKeyEnd = "</arg_key>", kArgValue = "<arg_value>",
                                  kArgValueEnd = "</arg_value>";

// The delimiters of DeepSeek's and Kimi's sections.
struct SectionDelimiters {
  std::string_view begin, call, separator, call_end, end;
};
[[nodiscard]] SectionDelimiters section_delimiters(CallStyle style);

}  // namespace quire
