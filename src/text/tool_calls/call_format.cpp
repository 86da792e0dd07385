// Finds out from a chat template how a model writes calls. Called once per model, when the server starts. It looks for the marks that
// templates of known families contain; one that is not known gets the plain format, which any model can be asked for.
#include "text/tool_calls/call_format.h"

#include <algorithm>
#include <array>

#include "text/tool_calls/harmony_marks.h"

namespace quire {
namespace {

constexpr SectionMarks kDeepSeek{"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>",
                                 "<｜tool▁calls▁end｜>"};
constexpr SectionMarks kKimi{"<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>",
                             "<|tool_calls_section_end|>"};

struct Marks {
  std::string_view open, close;
};
constexpr std::array kThoughts{Marks{"<think>", "</think>"}, Marks{"[THINK]", "[/THINK]"}, Marks{"<seed:think>", "</seed:think>"},
                               Marks{"<|START_THINKING|>", "<|END_THINKING|>"}};

// What shows a format, the most telling first.
struct Sign {
  std::string_view text;  // in the template
  std::string_view also;  // as well
  CallStyle style;
  Marks marks;
  bool is_list = false;
};
constexpr std::array kSigns{
    Sign{harmony::kChannel, harmony::kMessage, CallStyle::harmony, {}},
    Sign{kDeepSeek.begin, "```json", CallStyle::deepseek, {kDeepSeek.begin, {}}},
    Sign{kDeepSeek.begin, {}, CallStyle::deepseek_v31, {kDeepSeek.begin, {}}},
    Sign{kKimi.begin, {}, CallStyle::kimi, {kKimi.begin, {}}},
    Sign{"[TOOL_CALLS]", "[ARGS]", CallStyle::mistral_v11, {"[TOOL_CALLS]", {}}},
    Sign{"[TOOL_CALLS]", {}, CallStyle::mistral, {"[TOOL_CALLS]", {}}},
    Sign{"<|tool_call|>", {}, CallStyle::marked, {"<|tool_call|>", {}}, true},
    Sign{"<TOOLCALL>", {}, CallStyle::marked, {"<TOOLCALL>", "</TOOLCALL>"}, true},
    Sign{"<tool_calls>[", {}, CallStyle::marked, {"<tool_calls>", "</tool_calls>"}, true},
    Sign{"<|tool_call_start|>", {}, CallStyle::pythonic, {"<|tool_call_start|>", "<|tool_call_end|>"}},
    Sign{"<|tool_list_start|>", {}, CallStyle::pythonic, {"<|tool_call_start|>", "<|tool_call_end|>"}},
    Sign{"<tool_call>", "<parameter=", CallStyle::xml, {"<tool_call>", "</tool_call>"}},
    // GLM and others write something else between the same marks.
    Sign{"<tool_call>", "\"arguments\"", CallStyle::marked, {"<tool_call>", "</tool_call>"}},
    Sign{"<tool_call>", "\\\"arguments\\\"", CallStyle::marked, {"<tool_call>", "</tool_call>"}},
    // This template shows no tools, but the model was made with Hermes' format.
    Sign{"named SmolLM, trained by Hugging Face", "Reasoning Mode", CallStyle::marked, {"<tool_call>", "</tool_call>"}},
    Sign{"[func_name1(params_name1=params_value1", {}, CallStyle::pythonic, {}},
    Sign{"{\"name\": function name, \"parameters\": dictionary", {}, CallStyle::llama, {"<|python_tag|>", {}}},
};

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace

CallFormat detect_call_format(std::string_view chat_template) {
  CallFormat format;
  const auto sign = std::ranges::find_if(kSigns, [&](const Sign& s) { return has(chat_template, s.text) && has(chat_template, s.also); });
  if (sign != kSigns.end()) {
    format.style = sign->style;
    format.open = sign->marks.open;
    format.close = sign->marks.close;
    format.is_list = sign->is_list;
  }
  const auto thought =
      std::ranges::find_if(kThoughts, [&](const Marks& m) { return has(chat_template, m.open) && has(chat_template, m.close); });
  if (thought != kThoughts.end()) {
    format.think_open = thought->open;
    format.think_close = thought->close;
  }
  if (format.style == CallStyle::harmony) {
    format.think_open = std::string(harmony::kChannel) + "analysis" + std::string(harmony::kMessage);
    format.think_close = harmony::kEnd;
  }
  format.shows_tools = has(chat_template, "tools");
  format.shows_calls = has(chat_template, "tool_calls");
  format.shows_results = has(chat_template, "tool");
  format.wants_short_ids = has(chat_template, "length != 9");
  format.wants_text_arguments = has(chat_template, "['function']['arguments'] +");
  format.reads_effort = has(chat_template, "reasoning_effort");
  format.has_no_system = has(chat_template, "System role not supported");
  return format;
}

std::vector<std::string> CallFormat::marks() const {
  if (style == CallStyle::harmony) return {harmony::kMarks.begin(), harmony::kMarks.end()};
  std::vector<std::string> marks;
  for (const std::string* mark : {&open, &close, &think_open, &think_close})
    if (!mark->empty()) marks.push_back(*mark);
  const SectionMarks sections = section_marks(style);
  for (const std::string_view mark : {sections.begin, sections.call, sections.separator, sections.call_end, sections.end})
    if (!mark.empty()) marks.emplace_back(mark);
  if (style == CallStyle::mistral_v11) marks.insert(marks.end(), {"[ARGS]", "[CALL_ID]"});
  return marks;
}

bool ends_in_thought(const CallFormat& format, std::string_view prompt) {
  const std::size_t last = prompt.find_last_not_of(" \n\t\r");
  return !format.think_open.empty() && last != std::string_view::npos && prompt.substr(0, last + 1).ends_with(format.think_open);
}

SectionMarks section_marks(CallStyle style) {
  if (style == CallStyle::deepseek || style == CallStyle::deepseek_v31) return kDeepSeek;
  return style == CallStyle::kimi ? kKimi : SectionMarks{};
}

}  // namespace quire
