#pragma once
// Flags of every command that starts an engine. If vLLM has the same flag, the name is vLLM's.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <string_view>

#include "quire/base/error.h"
#include "quire/base/options.h"

namespace quire {

// Parses "2GiB", "512M", "1.5GB" or plain bytes. K, M, G, T and their KiB forms are powers of 1024; kB, MB, GB, TB are powers of 1000.
Result<std::uint64_t> parse_bytes(std::string_view text);

// Adds the argument MODEL and the engine's flags. `options` must outlive parsing.
void add_engine_flags(CLI::App& app, EngineOptions& options);

// Returns a validator that converts a size such as "2GiB" to bytes, and "auto" to 0.
CLI::Validator bytes_flag();

}  // namespace quire
