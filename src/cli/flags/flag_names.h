#pragma once
// Replaces the names of options in errors by the flags that the user wrote.
#include <CLI/CLI.hpp>

#include "quire/base/error.h"

namespace quire {

// Returns `error` with a flag in place of the field, if the field is an option of the engine or of the server. Other fields stay unchanged.
Error as_flag(Error error);
// Like as_flag(error), and also replaces a field that is named like a flag of `command`, which need not be in a table: "rate_scale" becomes
// "--rate-scale".
Error as_flag(const CLI::App& command, Error error);

}  // namespace quire
