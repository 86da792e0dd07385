#pragma once
// The flags of `quire serve`, for every front end that serves a model with them: the command, and the C API (src/capi).
#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "cli/flags/lora_flags.h"
#include "cli/flags/tier_flags.h"
#include "quire/base/error.h"
#include "quire/base/logger.h"
#include "quire/base/options.h"
#include "quire/engine_builder.h"
#include "quire/server_options.h"
#include "quire/text/generation_config.h"

namespace quire {

struct ServeFlags {
  EngineOptions engine;
  ServerOptions server;
  std::vector<std::string> served_names;
  std::string config_file;  // read before the flags are parsed (cli/config_file.h)
  std::string chat_template_file;
  GenerationConfigOptions generation;
  std::vector<std::string> tenant_keys;
  std::string tenant_keys_file;
  LogOptions log;
  TierFlags tiers;
  LoraFlags lora;
};

// Adds all flags, in the order of --help, and sets the defaults in which `quire serve` differs from EngineOptions. `flags` must outlive
// parsing.
void add_serve_flags(CLI::App& app, ServeFlags& flags);

// The engine that flags describe, and the options of its server.
struct ServePlan {
  EngineBuilder engine;
  ServerOptions server;
  GenerationConfig generation;
  std::shared_ptr<Logger> logger;
};

// Reads the files that the flags name, except the model's files. `command` has parsed the flags. Errors name the flag or the option.
[[nodiscard]] Result<ServePlan> plan_serving(const CLI::App& command, const ServeFlags& flags);

// Adds the tenant keys of the flags to the server options. Errors: a key or the file is invalid.
[[nodiscard]] Result<void> read_tenant_key_flags(const ServeFlags& flags, ServerOptions& options);

// Logs a warning for each given flag that has no effect with this engine.
void warn_of_unused_flags(const CLI::App& command, const ServeFlags& flags, const ServerOptions& options, const Engine& engine,
                          Logger& logger);

}  // namespace quire
