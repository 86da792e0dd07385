#pragma once
// The flags of `quire serve --models`.
#include <CLI/CLI.hpp>
#include <string>

#include "cli/models_file.h"

namespace quire {

struct ModelsFlags {
  std::string path;  // empty: one model
  ModelsLimits limits;
  int supervisor = 0;  // process id of the `quire serve --models` that has started this process; 0: none
};

// The variable in which `quire serve --models` passes the keys of --tenant-key to its processes, one per line. Other users of the machine
// can see arguments, but not variables.
inline constexpr const char* kTenantKeysVariable = "QUIRE_SUPERVISED_TENANT_KEYS";

// `flags` must outlive parsing.
void add_models_flags(CLI::App& app, ModelsFlags& flags);

}  // namespace quire
