#pragma once
// A flag that takes one of a few names.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>
#include <string>

namespace quire {

// One of the names of an enumeration; --help and errors list the names alone.
template <class Enum>
void add_choice(CLI::App& app, const char* flag, Enum& value, const char* help, const std::map<std::string, Enum>& choices) {
  std::string names;
  for (const auto& [name, unused] : choices) names += (names.empty() ? "" : "|") + name;
  app.add_option_function<std::string>(
         flag,
         [&value, choices, names, flag](const std::string& text) {
           const auto found = choices.find(text);
           if (found == choices.end()) throw CLI::ValidationError(flag, fmt::format("'{}' is not a choice; use {}", text, names));
           value = found->second;
         },
         help)
      ->type_name(names);
}

}  // namespace quire
