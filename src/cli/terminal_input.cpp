#include "cli/terminal_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/nearest_name.h"

namespace quire {
namespace {

using Kind = TerminalInput::Kind;

constexpr std::string_view kQuotes = "\"\"\"";
constexpr auto kTerminalCommands = std::to_array<std::pair<std::string_view, Kind>>(
    {{"/help", Kind::help}, {"/clear", Kind::clear}, {"/bye", Kind::end}, {"/exit", Kind::end}});

// Returns the first word of the line if it is a slash and letters; otherwise an empty text.
std::string_view command_word(std::string_view line) {
  const std::string_view word = line.substr(0, line.find_first_of(" \t\r"));
  const bool is_word = word.size() > 1 && word.front() == '/' &&
                       std::ranges::all_of(word.substr(1), [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); });
  return is_word ? word : "";
}

TerminalInput read_command(std::string_view word) {
  std::vector<std::string_view> known;
  for (const auto& [name, kind] : kTerminalCommands) {
    if (name == word) return {kind, ""};
    known.push_back(name);
  }
  const auto nearest = nearest_name(word, known);
  return {Kind::unknown, fmt::format("unknown command '{}'; {}", word,
                                     nearest ? fmt::format("did you mean '{}'?", *nearest) : std::string("/help lists the commands"))};
}

// Reads the rest of a message after its opening quotes.
TerminalInput read_quoted(std::istream& input, std::string line, const std::function<void(std::string_view)>& prompt) {
  std::string text;
  for (std::size_t end = line.find(kQuotes); end == std::string::npos; end = line.find(kQuotes)) {
    text += line + "\n";
    prompt("... ");
    if (!std::getline(input, line)) return {};
  }
  return {Kind::message, text + line.substr(0, line.find(kQuotes))};
}

}  // namespace

TerminalInput read_terminal_input(std::istream& input, const std::function<void(std::string_view)>& prompt) {
  for (std::string line; prompt("> "), std::getline(input, line);) {
    if (line.starts_with(kQuotes)) return read_quoted(input, line.substr(kQuotes.size()), prompt);
    if (const std::string_view word = command_word(line); !word.empty()) return read_command(word);
    if (line.find_first_not_of(" \t\r") != std::string::npos) return {Kind::message, line};
  }
  return {};
}

}  // namespace quire
