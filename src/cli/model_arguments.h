#pragma once
// The arguments of `quire serve` for one model of `quire serve --models`.
#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/flags/serve_flags.h"
#include "cli/models_file.h"
#include "quire/base/error.h"

namespace quire {

// A model with its checked arguments.
struct PreparedModel {
  std::vector<std::string> arguments;    // the flags; the model is in `flags`
  std::vector<std::string> environment;  // "NAME=VALUE": flags whose values other users of the machine must not see
  std::shared_ptr<CLI::App> app;         // has parsed the flags
  std::shared_ptr<ServeFlags> flags;     // the parsed flags
};

// Joins the flags of the model with the flags of `command`, which apply to all models. A folder that only one process can use becomes a
// folder per model. Errors: the model has a flag that only the whole server can have, or an invalid flag; a flag of the command cannot
// apply to several models.
Result<PreparedModel> prepare_model(const CLI::App& command, const ListedModel& model);

// Returns an argument with a folder that only one process can use, and that is in both lists; nullopt: no such argument.
[[nodiscard]] std::optional<std::string> folder_argument(std::span<const std::string> arguments, std::span<const std::string> others);

}  // namespace quire
