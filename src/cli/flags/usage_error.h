#pragma once
// The text of an error in the arguments of the command line.
#include <CLI/CLI.hpp>
#include <span>
#include <string>

namespace quire {

// Returns the text of an error that `app` has thrown while it parsed `arguments`. The text names the flag or the command, suggests the
// nearest known name, and ends with the command whose --help the user should read. The state of `app` shows what is wrong.
[[nodiscard]] std::string usage_error(const CLI::App& app, const CLI::ParseError& error, std::span<const std::string> arguments);

}  // namespace quire
