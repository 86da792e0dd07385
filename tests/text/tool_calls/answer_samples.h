#pragma once
// Formats of tool calls, an answer with two calls in each format, and a reader that also reads every answer in two pieces.
#include <gtest/gtest.h>

#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tool_calls/read_answer.h"
#include "text/tool_calls/tool_prompt.h"

namespace quire {

inline const std::vector<Tool>& weather_and_clock() {
  static const std::vector<Tool> tools{
      {.name = "weather",
       .parameters = boost::json::parse(R"({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"},
                                            "exact": {"type": "boolean"}, "where": {"type": ["object", "null"]}}})"),
       .strict = false},
      {.name = "clock", .parameters = nullptr, .strict = false}};
  return tools;
}

inline CallFormat format_of(CallStyle style, std::string open = {}, std::string close = {}) {
  CallFormat format;
  format.style = style;
  format.open = std::move(open);
  format.close = std::move(close);
  return format;
}

inline CallFormat hermes() {
  return format_of(CallStyle::marked, "<tool_call>", "</tool_call>");
}

inline CallFormat listed(std::string open, std::string close) {
  CallFormat format = format_of(CallStyle::marked, std::move(open), std::move(close));
  format.is_list = true;
  return format;
}

inline CallFormat thinking(CallFormat format) {
  if (format.style == CallStyle::harmony) return format;
  format.think_open = "<think>";
  format.think_close = "</think>";
  return format;
}

inline CallFormat harmony_format() {
  return detect_call_format("<|channel|><|message|>");
}

inline std::vector<CallFormat> all_formats() {
  return {format_of(CallStyle::plain),
          format_of(CallStyle::llama, "<|python_tag|>"),
          hermes(),
          listed("<|tool_call|>", ""),
          listed("<TOOLCALL>", "</TOOLCALL>"),
          format_of(CallStyle::mistral, "[TOOL_CALLS]"),
          format_of(CallStyle::mistral_v11, "[TOOL_CALLS]"),
          format_of(CallStyle::deepseek, std::string(section_delimiters(CallStyle::deepseek).begin)),
          format_of(CallStyle::deepseek_v31, std::string(section_delimiters(CallStyle::deepseek).begin)),
          format_of(CallStyle::kimi, std::string(section_delimiters(CallStyle::kimi).begin)),
          format_of(CallStyle::pythonic),
          format_of(CallStyle::pythonic, "<|tool_call_start|>", "<|tool_call_end|>"),
          format_of(CallStyle::xml, "<tool_call>", "</tool_call>"),
          detect_call_format("<seed:tool_call> <parameter="),
          detect_call_format("<tool_call> <arg_key>"),
          harmony_format()};
}

// Returns two calls as a model writes them in this format.
inline std::string answer_of(const CallFormat& format) {
  const boost::json::array calls = boost::json::parse(R"([{"function": {"name": "weather", "arguments": {"city": "Bern", "days": 2}}},
                                                          {"function": {"name": "clock", "arguments": {}}}])")
                                       .get_array();
  const std::string end = format.is_tight ? "</parameter>\n" : "\n</parameter>\n", begin = format.is_tight ? ">" : ">\n";
  switch (format.style) {
    case CallStyle::xml:
      return format.open + "\n<function=weather>\n<parameter=city" + begin + "Bern" + end + "<parameter=days" + begin + "2" + end +
             "</function>\n" + format.close + "\n" + format.open + "\n<function=clock>\n</function>\n" + format.close;
    case CallStyle::glm:
      return "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Bern</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n"
             "</tool_call>\n<tool_call>clock\n</tool_call>";
    case CallStyle::mistral_v11:
      return R"([TOOL_CALLS]weather[ARGS]{"city": "Bern", "days": 2}[TOOL_CALLS]clock[ARGS]{})";
    case CallStyle::llama:
      return R"({"name": "weather", "parameters": {"city": "Bern", "days": 2}}; {"name": "clock", "parameters": {}})";
    default:
      return write_calls(format, calls);
  }
}

inline ReadAnswer read(const CallFormat& format, std::string_view text, AnswerParserOptions options = {}) {
  ReadAnswer whole = read_answer(format, weather_and_clock(), text, {}, options);
  EXPECT_TRUE(whole.is_well_formed) << text;
  for (std::size_t cut = 1; cut < text.size(); ++cut)
    EXPECT_EQ(read_answer(format, weather_and_clock(), text, {cut}, options), whole) << text << " cut at " << cut;
  return whole;
}

}  // namespace quire
