#pragma once
// Flags of the commands whose engine may record what its scheduler does.
#include <CLI/CLI.hpp>

#include "quire/base/options.h"

namespace quire {

// `journal` must outlive parsing.
void add_journal_flags(CLI::App& app, JournalOptions& journal);

}  // namespace quire
