#pragma once
// Writes metrics in Prometheus's text format, version 0.0.4. Metrics of vLLM have vLLM's names, so that its dashboards work; other names
// begin with "quire:".
#include <cstdint>
#include <string>

#include "quire/engine.h"
#include "server/http/server_stats.h"

namespace quire {

[[nodiscard]] std::string metrics_text(const EngineStats& engine, const ServerStats& server, const std::string& model_name);

// Returns the resident memory of this process in bytes, or 0 if the system does not report it.
[[nodiscard]] std::uint64_t resident_bytes();

}  // namespace quire
