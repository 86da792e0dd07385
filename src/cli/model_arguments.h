#pragma once
// The arguments of `quire serve` for one model of `quire serve --models`.
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/flags/serve_flags.h"
#include "cli/models_file.h"
#include "quire/base/error.h"

namespace quire {

// A model with its checked arguments.
struct PreparedModel {
  std::vector<std::string> arguments;  // the flags; the model is in `flags`
  ServeFlags flags;                    // the parsed arguments
};

// Joins the flags of the model with the flags of `command`, which apply to all models. A folder that only one process can use becomes a
// folder per model. Errors: the model has a flag that only the whole server can have, or an invalid flag; a flag of the command cannot
// apply to several models.
Result<PreparedModel> prepare_model(const CLI::App& command, const ListedModel& model);

}  // namespace quire
