#pragma once
// Replaces the names of options in errors by the flags that the user wrote.
#include <CLI/CLI.hpp>

#include "quire/base/error.h"

namespace quire {

// Return `error` with a flag in place of the field's name. Other names stay unchanged.
// Replaces names of the engine's and the server's options.
// Also replaces names of the flags of `command`, which need not be in a table: "rate_scale" becomes "--rate-scale" if the command has this
// flag.
Error as_flag(Error error);
// The same for the flags of one command, which need not be in a table: "rate_scale" becomes "--rate-scale" if the command has this flag.
Error as_flag(const CLI::App& command, Error error);

}  // namespace quire
