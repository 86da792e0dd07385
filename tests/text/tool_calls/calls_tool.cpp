// Reads JSON lines {"template", "tools", "text", "seed", "every_cut"?} and writes the result of AnswerParser in the template's format:
// {"style", "content", "reasoning", "calls": [{"name", "arguments"}], "same"}. `same` says that random chunks give the same result; with
// `every_cut`, also every split into two. For {"template", "tools", "text", "required", "parallel", "control_tokens", "is_canonical"?} it
// writes {"taken", "grammar"} or {"error", "grammar"}: the part of the text that the grammar for calls accepts. The comparison with jinja2
// runs this tool.
#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "text/tool_calls/held_answer.h"
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

// Starts the grammar like the server: if free text comes first and a control token opens calls, the grammar begins after that token.
json::object held(const json::object& request) {
  const quire::CallFormat format = quire::detect_call_format(request.at("template").as_string());
  const quire::HeldAnswers answers(format, request.at("control_tokens").as_bool());
  quire::CallGrammarOptions options{.is_required = request.at("required").as_bool(), .parallel = request.at("parallel").as_bool()};
  options.token = [&](std::string_view mark) { return answers.token_of(mark); };
  options.is_canonical = request.contains("is_canonical");
  options.is_after_delimiter = !options.is_required && format.style != quire::CallStyle::llama && answers.token_of(format.open).has_value();
  const std::string text(request.at("text").as_string());
  const std::size_t begin = options.is_after_delimiter ? text.find(format.open) + format.open.size() : 0;
  const std::string grammar = quire::call_grammar(format, tools_of(request.at("tools")), options);
  const auto taken = answers.taken(grammar, std::string_view(text).substr(begin));
  if (!taken) return {{"error", taken.error().to_string()}, {"grammar", grammar}};
  return {{"taken", text.substr(0, begin) + *taken}, {"grammar", grammar}};
}

}  // namespace

int main() {
  json::parse_options options;
  options.max_depth = 256;
  for (std::string line; std::getline(std::cin, line);) {
    const json::value request = json::parse(line, {}, options);
    const json::object answered = request.as_object().contains("required") ? held(request.as_object()) : answer(request.as_object());
    std::cout << json::serialize(answered) << '\n' << std::flush;
  }
  return 0;
}
