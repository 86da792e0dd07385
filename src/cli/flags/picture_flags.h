#pragma once
#include <CLI/CLI.hpp>

#include "quire/server_options.h"

namespace quire {

// --limit-mm-per-prompt, --enable-mm-embeds, --allowed-media-domains and their bounds.
void add_picture_flags(CLI::App& app, ServerOptions& server);

}  // namespace quire
