// Reads the input as an answer in each tool call format, whole and in two pieces. The parts must be the same, and arguments of completed
// calls must be JSON objects. The first byte selects the format, from 'A' on, and the second one where the text is cut. The third byte
// selects whether the answer was cut off, begins within a thought, or may have one call. The program prints at its end how much it reached.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json/parse.hpp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "quire/text/utf8_repair.h"
#include "text/tool_calls/json_object.h"
#include "text/tool_calls/read_answer.h"

namespace {

constexpr const char* kTemplates[] = {"",
                                      "{\"name\": function name, \"parameters\": dictionary",
                                      "<tool_call> \"arguments\" <think></think>",
                                      "<|tool_call|>",
                                      "<TOOLCALL>",
                                      "[TOOL_CALLS]",
                                      "<｜tool▁calls▁begin｜> ```json",
                                      "<|tool_calls_section_begin|>",
                                      "[func_name1(params_name1=params_value1",
                                      "<|tool_call_start|>",
                                      "<tool_call> <parameter=",
                                      "<|channel|><|message|>",
                                      "<seed:tool_call> <parameter= <seed:think></seed:think>",
                                      "<tool_call> <arg_key> <think></think>",
                                      "[TOOL_CALLS] [ARGS]",
                                      "<｜tool▁calls▁begin｜> <think></think>"};

struct Reached {
  std::size_t inputs = 0, calls = 0, cut_calls = 0, broken_calls = 0, thoughts = 0;
  std::array<std::size_t, std::size(kTemplates)> calls_of{};

  ~Reached() {
    const auto formats = std::ranges::count_if(calls_of, [](std::size_t calls_of_one) { return calls_of_one > 0; });
    fmt::print(stderr, "tool_calls: {} inputs, {} calls in {} of {} formats, {} cut off, {} broken, {} answers with thoughts\n", inputs,
               calls, formats, calls_of.size(), cut_calls, broken_calls, thoughts);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Reached reached;
  if (size < 3) return 0;
  const std::size_t which = (data[0] + std::size(kTemplates) * 256 - 'A') % std::size(kTemplates);
  const quire::CallFormat format = quire::detect_call_format(kTemplates[which]);
  static const std::vector<quire::Tool> tools{
      {.name = "f",
       .parameters = boost::json::parse(R"({"properties": {"a": {"type": "string"}, "n": {"type": "integer"}, "o": {}}})"),
       .strict = false},
      {.name = "get.g-2", .parameters = nullptr, .strict = false}};
  std::string text;
  quire::Utf8Repair repair;  // a detokenizer's output is UTF-8
  repair.push({reinterpret_cast<const char*>(data) + 3, size - 3}, text);
  repair.flush(text);
  const quire::AnswerParserOptions options{.in_reasoning = data[2] % 8 == 5, .max_calls = data[2] % 8 == 6 ? 1U : 99U};
  const bool is_truncated = data[2] % 8 == 7;
  const quire::ReadAnswer whole = quire::read_answer(format, tools, text, {}, options, is_truncated);
  if (!whole.is_well_formed || whole.calls.size() > options.max_calls) std::abort();
  if (quire::read_answer(format, tools, text, {data[1] % (text.size() + 1)}, options, is_truncated) != whole) std::abort();
  for (const quire::ReadCall& call : whole.calls)
    if (!boost::json::parse(call.arguments).is_object()) std::abort();
  for (const quire::ReadCall& call : whole.cut)
    if (const auto closed = quire::complete_object(call.arguments, quire::UnterminatedString::closed);
        closed && !boost::json::parse(*closed).is_object())
      std::abort();
  ++reached.inputs;
  reached.calls += whole.calls.size();
  reached.calls_of[which] += whole.calls.size();
  reached.cut_calls += whole.cut.size();
  reached.broken_calls += whole.num_broken;
  reached.thoughts += whole.reasoning.empty() ? 0 : 1;
  return 0;
}
