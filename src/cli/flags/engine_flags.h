#pragma once
// Flags of every command that starts an engine. They have vLLM's names if vLLM has the same flag.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <string_view>

#include "quire/base/error.h"
#include "quire/base/options.h"

namespace quire {

// Parses "2GiB", "512M", "1.5GB" or plain bytes. K, M, G, T and their KiB forms are powers of 1024; kB, MB, GB, TB are powers of 1000.
Result<std::uint64_t> parse_bytes(std::string_view text);

// Adds MODEL and the engine's flags; `options` must outlive parsing.
void add_engine_flags(CLI::App& app, EngineOptions& options);

// Accepts "2GiB", or "auto" for 0.
CLI::Validator bytes_flag();

}  // namespace quire
