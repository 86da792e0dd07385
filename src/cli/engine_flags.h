#pragma once
// Flags of every command that starts an engine, named as vLLM names them where it has them.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "quire/engine_builder.h"
#include "quire/error.h"
#include "quire/options.h"

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

// Loads the model with a progress bar on a terminal.
Result<std::unique_ptr<Engine>> start_engine(const EngineOptions& options, std::shared_ptr<Logger> logger = nullptr,
                                             const KvDiskOptions& kv_disk = {}, const KvDramOptions& kv_dram = {},
                                             ConnectorChoice connectors = {}, const KvRemoteOptions& kv_remote = {},
                                             const KvPeerOptions& kv_peer = {}, const KvPeerCacheOptions& kv_peer_cache = {});

}  // namespace quire
