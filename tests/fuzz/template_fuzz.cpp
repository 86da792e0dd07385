// Parses any input as a template and renders it. parse() and render() must return within the limits.
#include <boost/json/parse.hpp>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "fuzz/subject.h"
#include "quire/text/chat_template.h"

namespace {

const boost::json::value& context() {
  static const boost::json::value value = boost::json::parse(R"({
    "messages": [{"role": "system", "content": "é"}, {"role": "user", "content": [{"type": "text", "text": " x\n"}]},
                 {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1.5, "b": [true]}}}]}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"type": "number"}}}}}],
    "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>", "n": 18446744073709551615, "f": -0.5})");
  return value;
}

}  // namespace

static quire::test::FuzzSubject subject("a rendered template");

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto parsed = quire::ChatTemplate::parse({reinterpret_cast<const char*>(data), size});
  if (!parsed) return parsed.error().message.empty() ? (std::abort(), 0) : 0;
  quire::TemplateOptions options;
  options.now_s = 1'764'598'325;
  options.limits = {20'000, 1 << 16, 1 << 20, 200};
  const auto text = parsed->render(context(), options);
  if (text) subject.reached();
  if (text && text->size() > options.limits.max_output_bytes) std::abort();
  return 0;
}
