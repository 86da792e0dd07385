// Reads JSON lines {"template", "tools", "text", "seed", "every_cut"?} and writes what AnswerParser makes of the text in the template's
// format,
// {"style", "content", "reasoning", "calls": [{"name", "arguments"}], "same"}; `same`: also in random pieces, and with `every_cut` cut once
// at each place. The comparison with jinja2 drives it.
#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "text/tool_calls/read_answer.h"

namespace {

namespace json = boost::json;

std::vector<quire::Tool> tools_of(const json::value& sent) {
  std::vector<quire::Tool> tools;
  for (const json::value& tool : sent.as_array()) {
    const json::object& function = tool.at("function").as_object();
    tools.push_back({.name = std::string(function.at("name").as_string()), .parameters = function.at("parameters"), .strict = false});
  }
  return tools;
}

bool is_cut_proof(const quire::CallFormat& format, const std::vector<quire::Tool>& tools, const std::string& text,
                  const quire::ReadAnswer& whole, const json::object& request) {
  std::mt19937_64 random(request.at("seed").to_number<std::uint64_t>());
  for (int run = 0; run < 3; ++run) {
    std::vector<std::size_t> cuts;
    for (std::size_t at = random() % 9; at < text.size(); at += 1 + random() % 17) cuts.push_back(at);
    if (quire::read_answer(format, tools, text, cuts) != whole) return false;
  }
  if (!request.contains("every_cut")) return true;
  for (std::size_t cut = 1; cut < text.size(); ++cut)
    if (quire::read_answer(format, tools, text, {cut}) != whole) return false;
  return true;
}

json::object answer(const json::object& request) {
  const quire::CallFormat format = quire::detect_call_format(request.at("template").as_string());
  const std::vector<quire::Tool> tools = tools_of(request.at("tools"));
  const std::string text(request.at("text").as_string());
  const quire::ReadAnswer whole = quire::read_answer(format, tools, text);
  json::array calls;
  for (const quire::ReadCall& call : whole.calls) calls.push_back(json::object{{"name", call.name}, {"arguments", call.arguments}});
  return {{"style", static_cast<int>(format.style)},
          {"content", whole.content},
          {"reasoning", whole.reasoning},
          {"calls", std::move(calls)},
          {"same", whole.is_well_formed && is_cut_proof(format, tools, text, whole, request)}};
}

}  // namespace

int main() {
  json::parse_options options;
  options.max_depth = 256;
  for (std::string line; std::getline(std::cin, line);)
    std::cout << json::serialize(answer(json::parse(line, {}, options).as_object())) << '\n' << std::flush;
  return 0;
}
