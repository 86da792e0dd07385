#pragma once
// Flags of `quire serve` from a file (--config), in the form of vLLM's: a YAML mapping from long names of flags to values.
#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/error.h"

namespace quire {

// One line of the file with its list items.
struct ConfigEntry {
  std::string key;  // the flag without dashes
  std::vector<std::string> values;
  bool is_list = false;
  std::size_t line = 0;  // from 1
};

// Parses the part of YAML that such files need: "key: value", comments, quoted texts, lists ("[a, b]", or lines "- a"), and an object in
// braces on one line, which stays text because flags with objects take JSON. Errors: a line of another form, or a key that occurs twice;
// the message begins with the line number.
Result<std::vector<ConfigEntry>> parse_config(std::string_view text);

// Returns the content of a file of at most 1 MiB. Errors: it cannot be read or is larger.
Result<std::string> read_config_text(const std::string& path);

// Appends the arguments of one flag of `command`, which is `quire serve`. Errors: the key is not a flag, or has a value of another form
// than its flag.
Result<void> append_config_entry(const CLI::App& command, const ConfigEntry& entry, std::vector<std::string>& arguments);

// Returns the arguments of the command line with the flags of the file that `serve --config FILE` names. A flag that the command line or
// an environment variable sets is not taken from the file. Returns other arguments unchanged. Errors: the file cannot be read; a key is
// not a flag, or has a value of another form than its flag.
Result<std::vector<std::string>> with_config_file(std::vector<std::string> arguments);

}  // namespace quire
