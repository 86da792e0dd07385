// Reads JSON lines {"template", "context", "now"?} and writes JSON lines {"ok", "text"} or {"ok": false, "error", "stage", "code"}: the
// comparison with jinja2 drives it.
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <iostream>
#include <string>

#include "quire/text/chat_template.h"

namespace {

boost::json::object failed(const quire::Error& error, const char* stage) {
  return {{"ok", false}, {"error", error.message}, {"stage", stage}, {"code", static_cast<int>(error.code)}};
}

boost::json::object answer(const boost::json::object& request) {
  const auto parsed = quire::ChatTemplate::parse(request.at("template").as_string());
  if (!parsed) return failed(parsed.error(), "parse");
  quire::TemplateOptions options;
  if (const auto* now = request.if_contains("now"); now != nullptr && now->is_int64()) options.now_s = now->as_int64();
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
