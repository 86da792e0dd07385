#pragma once
// A flag whose value is one of a few names.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>
#include <string>

namespace quire {

// Adds a flag whose value is one of an enumeration's names. --help and errors list the names, not the numbers.
template <class Enum>
CLI::Option* add_choice(CLI::App& app, const std::string& flag, Enum& value, const std::string& help,
                        const std::map<std::string, Enum>& choices) {
  std::string names;
  for (const auto& [name, unused] : choices) names += (names.empty() ? "" : "|") + name;
  return app
      .add_option_function<std::string>(
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
