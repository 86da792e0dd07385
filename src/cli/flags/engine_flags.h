#pragma once
// Flags of every command that starts an engine, named as vLLM names them where it has them.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <string_view>

#include "quire/base/error.h"
#include "quire/base/options.h"

namespace quire {

// "2GiB", "512M", "1.5GB" or plain bytes. K, M, G, T and their KiB forms are powers of 1024; kB, MB, GB, TB of 1000.
Result<std::uint64_t> parse_bytes(std::string_view text);
// "1.50 GiB"
std::string format_bytes(std::uint64_t bytes);

// Adds MODEL and the engine's flags; `options` must outlive parsing.
void add_engine_flags(CLI::App& app, EngineOptions& options);

// Those that a simulated engine has, too.
void add_scheduler_flags(CLI::App& app, SchedulerOptions& scheduler);
void add_continuum_flags(CLI::App& app, ContinuumOptions& continuum);

// "2GiB", or "auto" for 0.
CLI::Validator bytes_flag();

}  // namespace quire
