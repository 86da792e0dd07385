#pragma once
// Serves several models: `quire serve --models FILE|DIR`.
#include <CLI/CLI.hpp>

#include "cli/flags/serve_flags.h"
#include "cli/models_flags.h"
#include "quire/base/error.h"

namespace quire {

// Serves until a signal. `command` is the parsed command, whose flags apply to all models that do not set them. Returns the exit status.
// Errors: the list of models or a flag is invalid, or the port is in use.
Result<int> serve_models(const CLI::App& command, const ServeFlags& flags, const ModelsFlags& models);

}  // namespace quire
