// Detects from a chat template how a model writes calls, by the delimiters that templates of known families contain. Called by the server
// when it starts: once for its model, or once for each model of --models. An unknown template gets the plain format, which can be
// requested of any model.
#include "text/tool_calls/call_format.h"

#include <algorithm>
#include <array>

#include "text/tool_calls/harmony_delimiters.h"

namespace quire {
namespace {

constexpr SectionDelimiters kDeepSeek{"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>",
                                      "<｜tool▁calls▁end｜>"};
constexpr SectionDelimiters kKimi{"<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>",
                                  "<|tool_call_end|>", "<|tool_calls_section_end|>"};

struct DelimiterPair {
  std::string_view open, close;
};
constexpr std::array kReasoningDelimiters{DelimiterPair{"<think>", "</think>"}, DelimiterPair{"[THINK]", "[/THINK]"},
                                          DelimiterPair{"<seed:think>", "</seed:think>"},
                                          DelimiterPair{"<|START_THINKING|>", "<|END_THINKING|>"}};

// A text that identifies a format. In the table, more specific texts come first.
struct FormatSignature {
  std::string_view text;  // must be in the template
  std::string_view also;  // must also be in the template; empty: not required
  CallStyle style;
  DelimiterPair delimiters;
  bool is_list = false;
};
constexpr std::array kFormatSignatures{
    FormatSignature{harmony::kChannel, harmony::kMessage, CallStyle::harmony, {}},
    FormatSignature{kDeepSeek.begin, "```json", CallStyle::deepseek, {kDeepSeek.begin, {}}},
    FormatSignature{kDeepSeek.begin, {}, CallStyle::deepseek_v31, {kDeepSeek.begin, {}}},
    FormatSignature{kKimi.begin, {}, CallStyle::kimi, {kKimi.begin, {}}},
    FormatSignature{"[TOOL_CALLS]", "[ARGS]", CallStyle::mistral_v11, {"[TOOL_CALLS]", {}}},
    FormatSignature{"[TOOL_CALLS]", {}, CallStyle::mistral, {"[TOOL_CALLS]", {}}},
    FormatSignature{"<|tool_call|>", {}, CallStyle::marked, {"<|tool_call|>", {}}, true},
    FormatSignature{"<TOOLCALL>", {}, CallStyle::marked, {"<TOOLCALL>", "</TOOLCALL>"}, true},
    FormatSignature{"<tool_calls>[", {}, CallStyle::marked, {"<tool_calls>", "</tool_calls>"}, true},
    FormatSignature{"<|tool_call_start|>", {}, CallStyle::pythonic, {"<|tool_call_start|>", "<|tool_call_end|>"}},
    FormatSignature{"<|tool_list_start|>", {}, CallStyle::pythonic, {"<|tool_call_start|>", "<|tool_call_end|>"}},
    FormatSignature{"<seed:tool_call>", "<parameter=", CallStyle::xml, {"<seed:tool_call>", "</seed:tool_call>"}},
    FormatSignature{"<tool_call>", kArgKey, CallStyle::glm, {"<tool_call>", "</tool_call>"}},
    FormatSignature{"<tool_call>", "<parameter=", CallStyle::xml, {"<tool_call>", "</tool_call>"}},
    // The words must be in the template, because other formats use the same delimiters.
    FormatSignature{"<tool_call>", "\"arguments\"", CallStyle::marked, {"<tool_call>", "</tool_call>"}},
    FormatSignature{"<tool_call>", "\\\"arguments\\\"", CallStyle::marked, {"<tool_call>", "</tool_call>"}},
    // This template does not show tools, but its model was trained with the format of Hermes.
    FormatSignature{"named SmolLM, trained by Hugging Face", "Reasoning Mode", CallStyle::marked, {"<tool_call>", "</tool_call>"}},
    FormatSignature{"[func_name1(params_name1=params_value1", {}, CallStyle::pythonic, {}},
    FormatSignature{"{\"name\": function name, \"parameters\": dictionary", {}, CallStyle::llama, {"<|python_tag|>", {}}},
};

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace

CallFormat detect_call_format(std::string_view chat_template) {
  CallFormat format;
  const auto signature = std::ranges::find_if(
      kFormatSignatures, [&](const FormatSignature& s) { return has(chat_template, s.text) && has(chat_template, s.also); });
  if (signature != kFormatSignatures.end()) {
    format.style = signature->style;
    format.open = signature->delimiters.open;
    format.close = signature->delimiters.close;
    format.is_list = signature->is_list;
  }
  const auto thought = std::ranges::find_if(
      kReasoningDelimiters, [&](const DelimiterPair& m) { return has(chat_template, m.open) && has(chat_template, m.close); });
  if (thought != kReasoningDelimiters.end()) {
    format.think_open = thought->open;
    format.think_close = thought->close;
  }
  if (format.style == CallStyle::harmony) {
    format.think_open = std::string(harmony::kChannel) + "analysis" + std::string(harmony::kMessage);
    format.think_close = harmony::kEnd;
  }
  if (format.style == CallStyle::xml) format.is_tight = format.open == "<seed:tool_call>";
  if (format.style == CallStyle::glm)
    format.is_tight =
        !has(chat_template, "</arg_key>\n") && !has(chat_template, R"(</arg_key>\n)") && !has(chat_template, R"(\n<arg_value>)");
  format.shows_tools = has(chat_template, "tools");
  format.shows_calls = has(chat_template, "tool_calls");
  format.shows_results = has(chat_template, "tool");
  format.wants_short_ids = has(chat_template, "length != 9");
  format.wants_text_arguments = has(chat_template, "['function']['arguments'] +");
  format.reads_effort = has(chat_template, "reasoning_effort");
  return format;
}

std::vector<std::string> CallFormat::delimiters() const {
  if (style == CallStyle::harmony) return {harmony::kDelimiters.begin(), harmony::kDelimiters.end()};
  std::vector<std::string> delimiters;
  for (const std::string* delimiter : {&open, &close, &think_open, &think_close})
    if (!delimiter->empty()) delimiters.push_back(*delimiter);
  const SectionDelimiters sections = section_delimiters(style);
  for (const std::string_view delimiter : {sections.begin, sections.call, sections.separator, sections.call_end, sections.end})
    if (!delimiter.empty()) delimiters.emplace_back(delimiter);
  if (style == CallStyle::glm)
    for (const std::string_view delimiter : {kArgKey, kArgKeyEnd, kArgValue, kArgValueEnd}) delimiters.emplace_back(delimiter);
  if (style == CallStyle::mistral_v11) delimiters.insert(delimiters.end(), {"[ARGS]", "[CALL_ID]"});
  return delimiters;
}

bool ends_in_reasoning(const CallFormat& format, std::string_view prompt) {
  const std::size_t last = prompt.find_last_not_of(" \n\t\r");
  return !format.think_open.empty() && last != std::string_view::npos && prompt.substr(0, last + 1).ends_with(format.think_open);
}

SectionDelimiters section_delimiters(CallStyle style) {
  if (style == CallStyle::deepseek || style == CallStyle::deepseek_v31) return kDeepSeek;
  return style == CallStyle::kimi ? kKimi : SectionDelimiters{};
}

}  // namespace quire
