// Reads JSON lines {"template", "context", "now"?, "adapt"?} and writes JSON lines {"ok", "text"} or {"ok": false, "error", "stage",
// "code"}. The comparison with jinja2 runs this tool. With "adapt", messages and tools are first adapted to what the template can render,
// like in the server; the answer has the rendered "context".
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <iostream>
#include <string>

#include "quire/text/chat_template.h"
#include "text/tool_calls/call_format.h"
#include "text/tool_calls/template_roles.h"
#include "text/tool_calls/tool_definitions.h"
#include "text/tool_calls/tool_prompt.h"

namespace {

boost::json::object failed(const quire::Error& error, const char* stage) {
  return {{"ok", false}, {"error", error.message}, {"stage", stage}, {"code", static_cast<int>(error.code)}};
}

boost::json::object adapted_answer(const quire::ChatTemplate& chat_template, const boost::json::object& request,
                                   const quire::TemplateOptions& options) {
  const std::string_view source = request.at("template").as_string();
  boost::json::object context = request.at("context").as_object();
  const boost::json::value tools = context["tools"];  // a copy, because adapting may move the members of the object
  boost::json::array& messages = context.at("messages").as_array();
  const quire::TemplateRoles roles = quire::find_roles(chat_template, source);
  quire::CallFormat format = quire::detect_call_format(source);
  format.shows_calls &= roles.calls;
  format.wants_text_arguments |= roles.text_arguments;
  quire::adapt_messages(format, tools, messages);
  quire::adapt_roles(roles, messages);
  const auto text = quire::render_with_tools(chat_template, context, options);
  if (!text) return failed(text.error(), "render");
  return {{"ok", true}, {"text", *text}, {"context", context}};
}

boost::json::object answer(const boost::json::object& request) {
  const auto parsed = quire::ChatTemplate::parse(request.at("template").as_string());
  if (!parsed) return failed(parsed.error(), "parse");
  quire::TemplateOptions options;
  if (const auto* now = request.if_contains("now"); now != nullptr && now->is_int64()) options.now_s = now->as_int64();
  if (request.contains("adapt")) return adapted_answer(*parsed, request, options);
  const auto text = parsed->render(request.at("context"), options);
  if (!text) return failed(text.error(), "render");
  return {{"ok", true}, {"text", *text}};
}

}  // namespace

int main() {
  boost::json::parse_options options;
  options.max_depth = 256;
  for (std::string line; std::getline(std::cin, line);)
    std::cout << boost::json::serialize(answer(boost::json::parse(line, {}, options).as_object())) << '\n' << std::flush;
  return 0;
}
