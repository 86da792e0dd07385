// Reads the input as an answer in each format of calls, whole and in two pieces: the parts are the same, and arguments of calls that ended
// are JSON objects. The first byte chooses the format, the second where the text is cut.
#include <boost/json/parse.hpp>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "quire/text/utf8_repair.h"
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
                                      "<|channel|><|message|>"};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const quire::CallFormat format = quire::detect_call_format(kTemplates[data[0] % std::size(kTemplates)]);
  static const std::vector<quire::Tool> tools{{.name = "f", .parameters = nullptr, .strict = false}};
  std::string text;
  quire::Utf8Repair repair;  // what comes from a detokenizer is UTF-8
  repair.push({reinterpret_cast<const char*>(data) + 2, size - 2}, text);
  repair.flush(text);
  const quire::ReadAnswer whole = quire::read_answer(format, tools, text);
  if (!whole.is_well_formed) std::abort();
  if (quire::read_answer(format, tools, text, {data[1] % (text.size() + 1)}) != whole) std::abort();
  for (const quire::ReadCall& call : whole.calls)
    if (!boost::json::parse(call.arguments).is_object()) std::abort();
  return 0;
}
