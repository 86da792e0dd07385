#pragma once
// How a model writes calls of tools and what it thinks, found from its chat template.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

enum class CallStyle : std::uint8_t {
  plain,        // the answer is {"name": ..., "arguments": {...}}, or a list of such: what models without a format are asked for
  llama,        // {"name": ..., "parameters": {...}}, perhaps behind <|python_tag|>
  marked,       // such objects between marks, each (Hermes, Qwen: <tool_call>) or all of them as a list (Granite, Nemotron, Apriel)
  mistral,      // [TOOL_CALLS] and a list of such objects
  mistral_v11,  // [TOOL_CALLS]name[ARGS]{...}
  deepseek,     // R1, V3: sections, the arguments in a fence of Markdown
  deepseek_v31,
  kimi,
  pythonic,  // [name(key=value, ...), ...], perhaps between marks (Llama 4, LFM2)
  xml,       // <function=name><parameter=key>value (Qwen3-Coder)
  harmony    // messages with heads that name channels and functions (gpt-oss)
};

// What a model's calls and thoughts look like; found once per template (detect_call_format), and never changed.
struct CallFormat {
  CallStyle style = CallStyle::plain;
  std::string open, close;              // the marks around calls; empty: none
  bool is_list = false;                 // marked: all calls of an answer are one list
  std::string think_open, think_close;  // the marks around what the model thinks before it answers; empty: it does not
  bool shows_tools = false;             // the template reads `tools`
  bool shows_calls = false;             // it writes the calls of earlier turns
  bool shows_results = false;           // it knows the role "tool"
  bool wants_short_ids = false;         // it refuses ids of calls that are not nine letters and digits
  bool wants_text_arguments = false;    // it adds the arguments of calls to text, so they must be JSON text
  bool reads_effort = false;            // it reads reasoning_effort
  bool has_no_system = false;           // it refuses system messages

  // Everything that may be a control token of the vocabulary and yet belongs to the answer's text.
  [[nodiscard]] std::vector<std::string> marks() const;
};

[[nodiscard]] CallFormat detect_call_format(std::string_view chat_template);

// Whether a prompt ends within a reasoning part, which the answer then goes on with.
[[nodiscard]] bool ends_in_thought(const CallFormat& format, std::string_view prompt);

// The marks of DeepSeek's and Kimi's sections.
struct SectionMarks {
  std::string_view begin, call, separator, call_end, end;
};
[[nodiscard]] SectionMarks section_marks(CallStyle style);

}  // namespace quire
